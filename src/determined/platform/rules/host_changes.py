"""Commands of a startup hook that change the machine itself, not just the experiment. Pure."""

from __future__ import annotations

import re
from typing import NamedTuple

COMMANDS = (
    *("apt", "apt-get", "aptitude", "dpkg", "yum", "dnf", "microdnf", "zypper", "rpm", "apk"),
    *("pacman", "brew", "port", "snap", "flatpak", "conda", "mamba", "micromamba", "sudo", "su"),
    *("useradd", "adduser", "usermod", "userdel", "groupadd", "addgroup", "passwd", "chpasswd"),
    *("systemctl", "service", "update-rc.d", "chkconfig", "mount", "umount", "modprobe", "sysctl"),
    *("update-alternatives", "ldconfig", "iptables", "crontab", "reboot", "shutdown"),
)
"""What is looked for, wherever a shell would take it for a command."""

_STARTS = r"(?:^|[;&|({`!]|\$\(|\b(?:then|do|else|if|while|until|time|exec|env|nohup|command)\b)\s*"
_VARIABLES = r"(?:\w+=\S*\s+)*"
_FOUND = re.compile(
    rf"{_STARTS}{_VARIABLES}(?:/\S*/)?({'|'.join(map(re.escape, COMMANDS))})(?![\w.=-])"
)


class HostChange(NamedTuple):
    """A line of a hook that runs one of the commands."""

    number: int
    line: str
    command: str


def host_changes(script: str) -> list[HostChange]:
    """Return the lines that run such a command; comments and quoted words are none."""
    found = []
    for number, line in enumerate(script.splitlines(), start=1):
        code = re.sub(r"'[^']*'|\"[^\"$`]*\"", "''", line)
        code = re.sub(r"(^|\s)#.*", "", code)
        if match := _FOUND.search(code):
            found.append(HostChange(number, line.strip(), match[1]))
    return found
