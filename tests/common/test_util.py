"""Names under `determined.common`."""

from __future__ import annotations

from pathlib import Path

import pytest

from determined.common import util


def test_small_helpers() -> None:
    assert list(util.chunks([1, 2, 3], 2)) == [[1, 2], [3]]
    with pytest.raises(ValueError, match="chunk_size"):
        list(util.chunks([1], 0))
    assert [util.sizeof_fmt(n) for n in (3, 1536, 1024**2, 2.0**50)] == [
        "3.0B",
        "1.5KB",
        "1.0MB",
        "1.0PB",
    ]


def test_yaml_that_cannot_be_read_says_where(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("a: [1, 2]")
    with file.open() as stream:
        assert util.safe_load_yaml_with_exceptions(stream) == {"a": [1, 2]}
    text = "a: 1e-3\nb: yes\nc: 017\nd: 60_000\n"
    expected = {"a": 1e-3, "b": "yes", "c": 17, "d": 60000}
    assert util.safe_load_yaml_with_exceptions(text) == expected
    assert util.yaml_safe_load(str(util.yaml_safe_dump(expected))) == expected
    file.write_text("a: [1, 2")
    with file.open() as stream, pytest.raises(ValueError, match=r"config\.yaml is not YAML"):
        util.safe_load_yaml_with_exceptions(stream)


def test_debug_mode_is_a_variable_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DET_DEBUG", raising=False)
    assert not util.debug_mode()
    monkeypatch.setenv("DET_DEBUG", "true")
    assert util.debug_mode()
