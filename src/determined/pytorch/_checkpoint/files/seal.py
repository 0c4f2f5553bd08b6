"""Which checkpoints runs of this home wrote: a code in them that only its secret can make.

Anybody who can write to a storage can put files there, with a manifest that fits. A seal is over
the hashes of the files with objects, so that classes of the trial's own code are trusted in these
files and in no others.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
import pathlib
from collections.abc import Mapping
from typing import Any

from determined._contracts.home import checkpoint_key, home_path
from determined._info import get_cluster_info
from determined.storage import FileDigest
from determined.storage._manifest import read_manifest

logger = logging.getLogger("determined.pytorch")


def can_seal() -> bool:
    """Say whether this process has the secret of its home."""
    return _key() is not None


def seal(run_id: str, files: Mapping[str, FileDigest]) -> dict[str, Any] | None:
    """Return what tells these files from others; None if this process does not have the secret."""
    key = _key()
    if key is None:
        return None
    hashes = {name: digest.sha256 for name, digest in files.items()}
    return {"files": sorted(hashes), "code": _code(key, run_id, hashes)}


def sealed_files(path: pathlib.Path, run_id: str, found: Any) -> frozenset[str]:
    """Return the files of a verified checkpoint that a run of this home wrote as they are."""
    manifest, key = read_manifest(path, path.name), _key()
    if not isinstance(found, dict) or manifest is None or key is None:
        return frozenset()
    names, digests = found.get("files"), manifest.contents.files
    if not isinstance(names, list) or not all(isinstance(n, str) and n in digests for n in names):
        return frozenset()
    code = _code(key, run_id, {name: digests[name].sha256 for name in names})
    is_ours = hmac.compare_digest(code.encode(), str(found.get("code")).encode())
    return frozenset(names) if is_ours else frozenset()


def _code(key: bytes, run_id: str, hashes: Mapping[str, str]) -> str:
    text = json.dumps([run_id, sorted(hashes.items())])
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()


def _key() -> bytes | None:
    info = get_cluster_info()
    if info is not None and info._checkpoint_key:  # on a node that may not see the home
        return info._checkpoint_key.encode()
    try:
        return checkpoint_key(home_path())
    except OSError as e:
        logger.debug("no key for checkpoints: %s", e)
        return None
