"""The static files of the page: compressed once, and sent again only if they changed."""

from __future__ import annotations

import gzip
import hashlib
import re
import threading
from dataclasses import dataclass
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response

from determined.dashboard.endpoints.encoding import takes_gzip

FOLDER = Path(__file__).parents[1] / "static"
_NAME = re.compile(r"(?:[A-Za-z0-9_-][A-Za-z0-9_.-]*/)*[A-Za-z0-9_-][A-Za-z0-9_.-]*")
_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".ico": "image/x-icon",
    ".woff2": "font/woff2",
    ".txt": "text/plain; charset=utf-8",
    ".webmanifest": "application/manifest+json",
}
_IMAGES = (".png", ".ico", ".woff2")
_LONGEST_NAME = 200


@dataclass(frozen=True)
class _File:
    mark: tuple[int, int]
    content: bytes
    packed: bytes | None
    etag: str


class StaticFiles:
    """Serves the files of one folder by name; nothing else can be requested."""

    def __init__(self, folder: Path = FOLDER) -> None:
        self._folder = folder
        self._files: dict[Path, _File] = {}
        self._guard = threading.Lock()

    def find(self, name: str) -> Path | None:
        """The file with a name; None if the page has no such file."""
        if len(name) > _LONGEST_NAME or not _NAME.fullmatch(name):
            return None
        if Path(name).suffix not in _TYPES:
            return None
        path = self._folder / name
        return path if path.is_file() and not path.is_symlink() else None

    def answer(self, path: Path, request: Request, status: int = 200) -> Response:
        """A file, or 304 if the browser already has it as it is now."""
        file = self._load(path)
        headers = {"ETag": file.etag, "Cache-Control": "no-cache", "Vary": "Accept-Encoding"}
        known = request.headers.get("if-none-match", "")
        if status == 200 and file.etag in (
            tag.strip().removeprefix("W/") for tag in known.split(",")
        ):
            return Response(status_code=304, headers=headers)
        content = file.content
        if file.packed is not None and takes_gzip(request.headers.get("accept-encoding", "")):
            headers["Content-Encoding"] = "gzip"
            content = file.packed
        return Response(content, status, media_type=_TYPES[path.suffix], headers=headers)

    def _load(self, path: Path) -> _File:
        status = path.stat()
        mark = (status.st_mtime_ns, status.st_size)
        with self._guard:
            known = self._files.get(path)
            if known is None or known.mark != mark:
                content = path.read_bytes()
                packed = None if path.suffix in _IMAGES else gzip.compress(content, 6, mtime=0)
                digest = hashlib.sha256(content).hexdigest()[:24]
                known = self._files[path] = _File(mark, content, packed, f'"{digest}"')
            return known
