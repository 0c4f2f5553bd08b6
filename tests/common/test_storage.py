"""The former place of storages."""

from __future__ import annotations

from pathlib import Path

import pytest

from determined.common import storage


def test_a_section_of_a_config_becomes_storage(tmp_path: Path) -> None:
    section = {"type": "shared_fs", "host_path": str(tmp_path), "storage_path": "inner"}
    manager = storage.from_config(section)
    assert isinstance(manager, storage.SharedFSStorageManager)
    storage.validate_manager(manager)
    storage.validate_config(section, None)
    with pytest.raises(TypeError, match="Unknown storage type: tape"):
        storage.from_config({"type": "tape"})
