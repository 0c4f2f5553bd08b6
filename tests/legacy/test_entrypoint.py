"""The older form of an entrypoint."""

from __future__ import annotations

from determined._legacy.entrypoint import is_trial_class


def test_only_the_old_form_is_a_trial_class() -> None:
    assert is_trial_class("m:T")
    assert is_trial_class(" pkg.m:Outer.T\n")
    assert not is_trial_class("python3 train.py")
    assert not is_trial_class(["m:T"])
