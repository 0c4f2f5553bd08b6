"""The comparison of the character example with a plain loop measures both."""

from __future__ import annotations

import pytest

from benchmarks import language_model


def test_both_loops_train_and_are_timed(capsys: pytest.CaptureFixture[str]) -> None:
    script = language_model.example()
    assert language_model.plain(script, 3) > 0
    assert language_model.ours(script, 3) > 0
    with pytest.raises(ValueError, match="`count` must be at least 2"):
        language_model.plain(script, 1)
