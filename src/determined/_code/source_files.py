"""Which files of a directory are source: what a checkpoint keeps of the user's code.

Source is what has one of the endings of programs, wherever it lies, and small files with the
endings of settings beside a Python file. A `.detinclude` file names more (gitignore syntax). What
looks like a secret is never source.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Callable
from pathlib import Path, PurePath

INCLUDE_FILE = ".detinclude"
_PROGRAMS = frozenset(
    (".py", ".pyi", ".pyx", ".pxd", ".c", ".cc", ".cpp", ".cu", ".cuh", ".h", ".hpp", ".sh")
)
_SETTINGS = frozenset([".cfg", ".ini", ".json", ".md", ".toml", ".txt", ".yaml", ".yml"])
_LARGEST_SETTINGS = 2**20
# fmt: off
_SECRETS = (
    ".env", ".env.*", "*.env", ".envrc", "*.pem", "*.key", "*.p12", "*.pfx", "*.jks",
    "*.keystore", "*.kdbx", "*.ppk", "id_rsa*", "id_dsa*", "id_ecdsa*", "id_ed25519*", ".netrc",
    "_netrc", ".pgpass", ".pypirc", ".npmrc", ".htpasswd", ".git-credentials", "*credential*.*",
    "credentials", "*secret*.*", "secrets", "kubeconfig", "*service_account*.json", "token",
    "token.*", "*_token", "*.token",
)
# fmt: on
_SECRET_FOLDERS = frozenset((".ssh", ".aws", ".azure", ".gnupg", ".kube", ".docker", "secrets"))


def looks_like_a_secret(path: PurePath) -> bool:
    """Whether a name is one that keys and passwords usually have; programs may have any."""
    if path.suffix in _PROGRAMS:
        return False
    folders = {part.lower() for part in path.parts[:-1]}
    name = path.name.lower()
    return bool(folders & _SECRET_FOLDERS) or any(fnmatch.fnmatch(name, p) for p in _SECRETS)


def source_rule(root: Path, folders_with_python: set[PurePath]) -> Callable[[PurePath, int], bool]:
    """Return what says of a path below `root`, and its size, whether it is source."""
    from pathspec import GitIgnoreSpec

    try:
        text = (root / INCLUDE_FILE).read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""
    included = GitIgnoreSpec.from_lines(text.splitlines())

    def is_source(path: PurePath, size: int) -> bool:
        if looks_like_a_secret(path):
            return False
        is_setting = path.suffix in _SETTINGS and path.parent in folders_with_python
        return (
            path.suffix in _PROGRAMS
            or (is_setting and size <= _LARGEST_SETTINGS)
            or included.match_file(path.as_posix())
        )

    return is_source
