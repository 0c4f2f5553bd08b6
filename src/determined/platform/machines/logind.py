"""Whether this machine ends a user's processes at logout, the supervisor and its runs among them.

Some systemd machines do (`KillUserProcesses=yes`); only processes outside the session's scope stay.
"""

from __future__ import annotations

import getpass
import re
from collections.abc import Iterable
from pathlib import Path

_BOOTED_BY_SYSTEMD = Path("/run/systemd/system")
_CGROUP = Path("/proc/self/cgroup")
# From the weakest to the strongest; of files with the same name the strongest one counts.
_FOLDERS = ("/usr/lib/systemd", "/usr/local/lib/systemd", "/run/systemd", "/etc/systemd")
_SESSION = re.compile(r"/session-[^/]+\.scope(/|$)", re.MULTILINE)

HINT = (
    "this machine kills your processes, including experiments, at logout "
    "(KillUserProcesses=yes). To keep them: `loginctl enable-linger`, then `systemd-run --user "
    "--scope det supervisor start`."
)


def will_kill_at_logout() -> bool:
    """Whether what we start now is ended when the user logs out."""
    try:
        if not _BOOTED_BY_SYSTEMD.exists():
            return False
        cgroup = _CGROUP.read_text()
        return kills_processes(_texts(), cgroup, getpass.getuser())
    except (OSError, UnicodeError, KeyError):  # unknown: say nothing
        return False


def kills_processes(texts: Iterable[str], cgroup: str, user: str) -> bool:
    """Decide by the files of logind, in their order, and by the group that a process is in."""
    values = {"KillUserProcesses": "no", "KillExcludeUsers": "root", "KillOnlyUsers": ""}
    for text in texts:
        for line in text.splitlines():
            key, sign, value = line.strip().partition("=")
            if sign and key.strip() in values:
                values[key.strip()] = value.strip()
    is_on = values["KillUserProcesses"].lower() in ("yes", "true", "1", "on")
    only = values["KillOnlyUsers"].split()
    is_meant = user in only if only else user not in values["KillExcludeUsers"].split()
    return is_on and is_meant and _SESSION.search(cgroup) is not None


def _texts() -> list[str]:
    named = {p.name: p for f in _FOLDERS for p in Path(f, "logind.conf.d").glob("*.conf")}
    mains = [path for folder in _FOLDERS if (path := Path(folder, "logind.conf")).exists()]
    files = [*mains[-1:], *(named[name] for name in sorted(named))]
    return [path.read_text() for path in files]
