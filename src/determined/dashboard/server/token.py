"""The secret of a dashboard, in a file that only its owner can read, and values derived from it.

The token is in the printed address once. The cookie that a browser keeps is derived from it, and
the value that actions must send is derived from the cookie: neither reveals the token.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import secrets
from pathlib import Path

from determined._contracts.home import make_private

FILE_NAME = "dashboard.token"
_SHORTEST = 20


def load_token(home: Path) -> str:
    """The token of a home; generated, and stored readable by its owner only, if there is none."""
    path = home / FILE_NAME
    make_private(home, parents=True)
    with contextlib.suppress(FileNotFoundError):
        path.chmod(0o600)
        token = path.read_text(encoding="ascii", errors="replace").strip()
        if len(token) >= _SHORTEST and token.isascii():
            return token
        path.unlink(missing_ok=True)  # truncated, for example because the disk was full
    draft = home / f".{FILE_NAME}.{secrets.token_hex(8)}"
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(secrets.token_urlsafe(32))
        with contextlib.suppress(FileExistsError):  # another dashboard was quicker
            os.link(draft, path)
        return path.read_text(encoding="ascii").strip()
    finally:
        draft.unlink()


def derive(secret: str, purpose: str) -> str:
    """Derive another secret that does not reveal the first."""
    return hmac.new(secret.encode(), purpose.encode(), hashlib.sha256).hexdigest()


def is_same(given: str, wanted: str) -> bool:
    """Whether two secrets are equal, compared in constant time."""
    return hmac.compare_digest(given.encode("utf-8", "replace"), wanted.encode())
