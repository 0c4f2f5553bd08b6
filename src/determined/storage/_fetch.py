"""Download a checkpoint into a user's folder: verified, then moved into place at once."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path

from determined.storage._base import Selector, with_parents
from determined.storage._durable import FileDigest, checkpoint_errors, digest_file, for_each
from determined.storage._manifest import (
    MANIFEST_NAME,
    METADATA_NAME,
    Manifest,
    check_digest,
    compare,
)


def fetch_into(
    folder: Path,
    sizes: Mapping[str, int],
    manifest: Manifest | None,
    selector: Selector | None,
    fetch: Callable[[str, Path], FileDigest],
    checkpoint: str,
) -> None:
    """Fetch the selected paths of `sizes` into `folder`.

    Everything is first copied to a hidden folder inside, is compared with the manifest (if there is
    one) and then moved out, `metadata.json` last: an aborted download never looks complete. The
    manifest itself is copied only with all files.
    """
    available = set(sizes)
    if manifest is not None:
        compare(manifest, sizes, None, checkpoint)
        available = set(manifest.contents.files) | manifest.contents.directories | {MANIFEST_NAME}
    if selector is not None:
        available = {path for path in available if path != MANIFEST_NAME and selector(path)}
    if not available:
        return
    chosen = with_parents(available)
    folders = sorted(path for path in chosen if path.endswith("/"))
    files = sorted(path for path in chosen if not path.endswith("/"))
    stage = folder / f".download-{uuid.uuid4().hex}"

    def fetch_one(path: str) -> None:
        digest = fetch(path, stage / path)
        expected = None if manifest is None else manifest.contents.files.get(path)
        if expected is None:
            return
        if digest.is_of_blocks and not expected.is_of_blocks:  # of an earlier release
            digest = digest_file(stage / path, like=expected)
        check_digest(checkpoint, path, digest, expected)

    is_new = not folder.exists()
    try:
        with checkpoint_errors("download into", folder, sum(sizes.get(path, 0) for path in files)):
            stage.mkdir(parents=True)
            for path in folders:
                (stage / path).mkdir(exist_ok=True)
            for_each(fetch_one, files)
            for path in folders:
                (folder / path).mkdir(exist_ok=True)
            for path in sorted(files, key=lambda path: (path == METADATA_NAME, path)):
                (stage / path).replace(folder / path)
    except BaseException:
        shutil.rmtree(folder if is_new else stage, ignore_errors=True)
        raise
    shutil.rmtree(stage, ignore_errors=True)
