"""Names under `determined.common`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from determined.common import storage, util


@pytest.mark.parametrize(("debug_enabled", "expected"), [(True, 2), (False, 1)])
def test_set_logger_shows_debug_lines_where_asked_to(debug_enabled: bool, expected: int) -> None:
    script = f"""
import logging
from determined.common import set_logger
set_logger({debug_enabled})
set_logger(debug_enabled={debug_enabled})
logging.getLogger("mine").debug("details")
logging.getLogger("mine").info("news")
"""
    result = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60
    )
    lines = result.stderr.splitlines()
    assert len(lines) == expected
    assert lines[-1].startswith("INFO: [")
    assert lines[-1].endswith("mine: news")


def test_a_section_of_a_config_becomes_storage(tmp_path: Path) -> None:
    section = {"type": "shared_fs", "host_path": str(tmp_path), "storage_path": "inner"}
    manager = storage.from_config(section)
    assert isinstance(manager, storage.SharedFSStorageManager)
    storage.validate_manager(manager)
    storage.validate_config(section, None)
    with pytest.raises(TypeError, match="Unknown storage type: tape"):
        storage.from_config({"type": "tape"})


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
