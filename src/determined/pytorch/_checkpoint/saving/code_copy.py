"""The user's code, in every checkpoint."""

from __future__ import annotations

import pathlib
import tempfile
from typing import IO

from determined._code.user_code import archive_user_code, unpack_user_code
from determined._contracts.checkpoint_layout import CODE
from determined.storage import FileDigest
from determined.storage._durable import digest_file, for_each


class CodeCopy:
    """The user's code as it was when training began; every checkpoint gets the same copy.

    In a local storage the checkpoints of a run share the files: hard links, so each is whole.
    """

    def __init__(self, source: pathlib.Path, exclude: list[pathlib.Path]) -> None:
        self._source = source
        self._exclude = exclude
        self._archive: IO[bytes] | None = None
        self._newest: pathlib.Path | None = None
        self._digests: dict[str, FileDigest] = {}

    def take(self) -> None:
        # Without a name, so that a killed process leaves nothing behind.
        self._archive = tempfile.TemporaryFile()  # noqa: SIM115  # closed by close()
        archive_user_code(self._source, self._archive, self._exclude)

    def write_into(self, checkpoint: pathlib.Path) -> dict[str, FileDigest]:
        """Write the copy, durably; return the digests of its files."""
        assert self._archive is not None
        linked = unpack_user_code(self._archive, checkpoint / CODE, self._newest)
        known = {name: digest for name, digest in self._digests.items() if name in linked}
        files = [file for file in (checkpoint / CODE).rglob("*") if file.is_file()]
        names = [file.relative_to(checkpoint / CODE).as_posix() for file in files]

        def digest(name: str) -> FileDigest:
            return known.get(name) or digest_file(checkpoint / CODE / name, sync=True)

        self._digests = dict(zip(names, for_each(digest, names), strict=True))
        return {f"{CODE}/{name}": digest for name, digest in self._digests.items()}

    def is_in(self, storage_base: pathlib.Path | None, storage_id: str) -> None:
        """Remember a checkpoint that has the copy."""
        if storage_base is not None:
            self._newest = storage_base / storage_id / CODE

    def close(self) -> None:
        if self._archive is not None:
            self._archive.close()
