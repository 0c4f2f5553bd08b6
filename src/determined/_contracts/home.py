"""Where the platform's home is, and its settings; every part of the package finds it this way."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
from pathlib import Path
from typing import Any

from determined._os.weak_file_systems import chmod

HOME_VARIABLE = "DET_HOME"
SETTINGS_FILE = "platform.yaml"
_KEY_FILE = "checkpoint.key"
_SHORTEST_KEY = 32


def home_path() -> Path:
    """The folder that `DET_HOME` names, else the one in the user's data directory."""
    named = os.environ.get(HOME_VARIABLE)
    if named:
        return Path(named).absolute()
    import platformdirs

    return Path(platformdirs.user_data_dir("determined")).absolute()


def make_home(home: Path) -> None:
    """Make the folder if it is missing; never where a disk should be mounted."""
    make_private(home, parents=not os.environ.get(HOME_VARIABLE))


def make_private(folder: Path, *, parents: bool) -> None:
    """Make a folder that only its owner can open, whatever it was before."""
    folder.mkdir(mode=0o700, parents=parents, exist_ok=True)
    status = folder.stat()
    if status.st_mode & 0o077 and status.st_uid == os.geteuid():
        chmod(folder, 0o700, folder)


def home_settings(home: Path) -> dict[str, Any]:
    """What `platform.yaml` of a home says; {} if there is none, ValueError if it cannot be read."""
    try:
        data = (home / SETTINGS_FILE).read_bytes()
    except FileNotFoundError:
        return {}
    from determined.config.reading.yaml_reader import read_value

    content = read_value(data, str(home / SETTINGS_FILE))
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise ValueError(f"{home / SETTINGS_FILE}: expected keys and values, got {content!r}.")
    return content


def checkpoint_key(home: Path) -> bytes:
    """The secret of a home that tells the checkpoints of its own runs from all others.

    Generated, and stored readable by its owner only, if there is none.
    """
    path = home / _KEY_FILE
    with contextlib.suppress(FileNotFoundError):
        return _read_key(path)
    make_home(home)
    draft = home / f".{_KEY_FILE}.{secrets.token_hex(8)}"
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(secrets.token_hex(32))
        with contextlib.suppress(FileExistsError):  # another process was quicker
            os.link(draft, path)
        return _read_key(path)
    finally:
        draft.unlink()


def _read_key(path: Path) -> bytes:
    key = path.read_bytes().strip()
    if len(key) < _SHORTEST_KEY:
        raise OSError(errno.EINVAL, "no key: delete it, and a new one will be made", str(path))
    return key
