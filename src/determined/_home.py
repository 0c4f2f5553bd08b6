"""Where the platform's home is, and its settings; every part of the package finds it this way."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from determined._weak_files import chmod

HOME_VARIABLE = "DET_HOME"
SETTINGS_FILE = "platform.yaml"


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
    from determined.config._yaml import read_value

    content = read_value(data, str(home / SETTINGS_FILE))
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise ValueError(f"{home / SETTINGS_FILE}: expected keys and values, got {content!r}.")
    return content
