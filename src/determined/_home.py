"""Where the platform's home is, and its settings; every part of the package finds it this way."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

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
    home.mkdir(mode=0o700, parents=not os.environ.get(HOME_VARIABLE), exist_ok=True)


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
