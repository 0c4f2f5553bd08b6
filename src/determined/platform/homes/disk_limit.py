"""`disk_limit` in platform.yaml: how much room a home may take, such as `200 GB`."""

from __future__ import annotations

import re

from determined._contracts.home import SETTINGS_FILE, home_settings
from determined.errors import DeterminedError
from determined.platform.homes.disk_usage import usage
from determined.platform.homes.home import Home

_AMOUNT = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([kMGT]?i?B?)", re.IGNORECASE)
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}


def find_limit(home: Home) -> int | None:
    """The limit of a home in bytes; None if there is none."""
    try:
        value = home_settings(home.path).get("disk_limit")
    except ValueError as error:
        raise DeterminedError(str(error)) from error
    if value is None:
        return None
    match = None if isinstance(value, bool) else _AMOUNT.fullmatch(str(value).strip())
    if match is None:
        raise DeterminedError(
            f"{home.path / SETTINGS_FILE}: disk_limit: expected bytes or an amount such as "
            f"200 GB, got {value!r}."
        )
    number, unit = float(match[1]), match[2].lower().removesuffix("b")
    base = 1024 if unit.endswith("i") else 1000
    return int(number * base ** _POWERS[unit.removesuffix("i")])


def used_bytes(home: Home) -> int:
    """How much room a home takes, with the checkpoints in it."""
    return sum(part.num_bytes for part in usage(home))


def beyond_limit(home: Home, used: int, limit: int) -> str:
    """The sentence that says that the limit is reached, and what to do."""
    return (
        f"The home {home.path} takes {in_words(used)}, and disk_limit in {SETTINGS_FILE} is "
        f"{in_words(limit)}. `det store df` shows who takes what; delete experiments or "
        "checkpoints, keep fewer (`det experiment set gc-policy`), or raise the limit."
    )


def in_words(num_bytes: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if num_bytes < 999.5:
            return f"{num_bytes:.3g} {unit}"
        num_bytes /= 1000
    return f"{num_bytes:.3g} TB"
