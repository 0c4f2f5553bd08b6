"""The launcher's switches in the environment."""

from __future__ import annotations

import pytest

import determined


@pytest.mark.parametrize(
    ("value", "is_on"),
    [("true", True), ("1", True), ("yes", True), ("0", False), ("False", False), ("", False)],
)
def test_negative_words_switch_off(
    value: str, is_on: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = determined._DistributedBackend()
    monkeypatch.setenv(backend.TORCH, value)
    monkeypatch.setenv(backend.HOROVOD, value)
    monkeypatch.delenv(backend.DEEPSPEED, raising=False)
    assert backend.use_torch() is is_on
    assert backend.use_horovod() is is_on
    assert not backend.use_deepspeed()
