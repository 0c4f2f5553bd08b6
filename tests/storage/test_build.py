"""Configs, paths and URLs become the storage that they name, or a clear error."""

from __future__ import annotations

import builtins
import importlib.util
from pathlib import Path
from typing import Any

import pytest

from determined.common import storage
from determined.common.check import CheckFailedError
from determined.storage import default_location, section_of


@pytest.mark.parametrize(
    ("config", "error", "message"),
    [
        ({}, ValueError, "Missing 'type' parameter"),
        ({"type": 3}, ValueError, "must be a string"),
        ({"type": "tape"}, TypeError, "Unknown storage type: tape"),
        ({"type": "shared_fs"}, CheckFailedError, "must be an absolute path"),
        ({"type": "shared_fs", "host_path": "a"}, CheckFailedError, "must be an absolute path"),
        (
            {"type": "shared_fs", "host_path": "/data", "storage_path": "/database"},
            CheckFailedError,
            "must be a subdirectory",
        ),
        (
            {"type": "shared_fs", "host_path": "/data", "storage_path": "a/../../b"},
            CheckFailedError,
            "must be a subdirectory",
        ),
        ({"type": "shared_fs", "host_path": "/d", "x": 1}, CheckFailedError, "unknown keys"),
        ({"type": "directory"}, TypeError, "container_path"),
        ({"type": "s3"}, TypeError, "bucket"),
        ({"type": "s3", "bucket": "b", "x": 1}, TypeError, "x"),
        ({"type": "s3", "bucket": "b", "prefix": "a/../b"}, ValueError, r"\.\."),
        ({"type": "azure"}, ValueError, "container"),
        ({"type": "azure", "container": "c"}, ValueError, "connection_string"),
    ],
)
def test_a_config_that_cannot_work_is_refused(
    config: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        storage.build(config, container_path=None)


@pytest.mark.parametrize(
    ("keys", "container_path", "base"),
    [
        ({}, None, "/data"),
        ({"storage_path": "a/b"}, None, "/data/a/b"),
        ({"storage_path": "/data/a"}, None, "/data/a"),
        ({"storage_path": "/data/a"}, "/inside", "/inside/a"),
        ({"checkpoint_path": "c"}, None, "/data/c"),
        ({"checkpoint_path": "c", "tensorboard_path": "t"}, None, "/data/t"),
        ({"save_trial_best": 3, "propagation": "rprivate", "container_path": "/x"}, None, "/data"),
    ],
)
def test_shared_fs_paths_are_joined(
    keys: dict[str, Any], container_path: str | None, base: str
) -> None:
    manager = storage.build({"type": "shared_fs", "host_path": "/data", **keys}, container_path)
    assert isinstance(manager, storage.SharedFSStorageManager)
    assert manager.base_path == Path(base)


def test_a_directory_is_never_mapped() -> None:
    manager = storage.build({"type": "directory", "container_path": "/mine"}, "/inside")
    assert manager.base_path == Path("/mine")


def test_prefixes_are_normalised() -> None:
    config = {"type": "s3", "bucket": "b", "prefix": "//a/./b/"}
    assert storage.build(config, None).location == "s3://b/a/b"
    assert storage.build({"type": "s3", "bucket": "b", "prefix": "/"}, None).location == "s3://b"


def test_strings_name_storages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert storage.from_string("/a/b").base_path == Path("/a/b")
    assert storage.from_string("file:///a/b").base_path == Path("/a/b")
    assert storage.from_string("s3://bucket/some/prefix").location == "s3://bucket/some/prefix"
    monkeypatch.chdir(tmp_path)
    assert storage.from_string("below").base_path == tmp_path / "below"


@pytest.mark.parametrize(
    "text", ["file://host/a", "s3://b/p?x=1", "s3://b/p#f", "ftp://host/a", "s3:///p", ""]
)
def test_strings_that_name_nothing_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="[Ss]torage|URL"):
        storage.from_string(text)


@pytest.mark.parametrize(("kind", "module"), [("gcs", "gcsfs"), ("azure", "adlfs"), ("s3", "s3fs")])
def test_a_missing_package_names_the_extra(
    kind: str, module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == module else find_spec(name)
    )
    name = "container" if kind == "azure" else "bucket"
    config = {"type": kind, name: "b"}
    if kind == "azure":
        config["connection_string"] = "x"
    with pytest.raises(ImportError, match=rf"determined-pytorch\[{kind}\]"):
        storage.build(config, None)


def test_validate_config_writes_and_cleans_up(tmp_path: Path) -> None:
    storage.validate_config({"type": "shared_fs", "host_path": str(tmp_path / "s")}, None)
    assert [path.name for path in (tmp_path / "s").iterdir()] == [".det-locks"]


def test_the_default_is_the_users_data_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DET_STORAGE", "/from/environment")
    assert default_location() == "/from/environment"
    monkeypatch.delenv("DET_STORAGE")
    monkeypatch.setenv("XDG_DATA_HOME", "/data/home")
    assert default_location() == "/data/home/determined"


def test_local_storage_needs_no_optional_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real_import = builtins.__import__

    def refuse(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.split(".")[0] in ("fsspec", "s3fs", "boto3", "torch"):
            raise AssertionError(f"{name} was imported")
        return real_import(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", refuse)
    storage.validate_manager(storage.from_string(str(tmp_path / "s")))


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("s3://bucket/a/b/", {"type": "s3", "bucket": "bucket", "prefix": "a/b"}),
        ("gs://bucket", {"type": "gcs", "bucket": "bucket"}),
        ("file:///data", {"type": "shared_fs", "host_path": "/data"}),
        ("/data", {"type": "shared_fs", "host_path": "/data"}),
        (Path("/data?x"), {"type": "shared_fs", "host_path": "/data?x"}),
        ({"type": "azure", "container": "c"}, {"type": "azure", "container": "c"}),
        (3, {}),
    ],
)
def test_every_way_to_name_a_storage_has_a_section(given: Any, expected: dict[str, Any]) -> None:
    assert section_of(given) == expected


def test_the_section_of_no_storage_is_that_of_the_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DET_STORAGE", "here")
    assert section_of(None) == {"type": "shared_fs", "host_path": str(tmp_path / "here")}
    storage.build(section_of(None))
