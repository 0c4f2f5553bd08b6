"""Hashes of what a checkpoint holds, tensor by tensor: small enough to outlive its files.

A path such as `models/0/layer.weight` or `optimizers/0/state/3/exp_avg` leads to the first eight
bytes of a hash, as text. What is no tensor has one hash for each state, such as `schedulers/0`.
Equal hashes mean equal bits, but for accidents of one in 2**64; they are no protection against
forgery, which is what the manifest is for.
"""

from __future__ import annotations

import base64
import binascii
import collections
import hashlib
import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from determined._contracts.checkpoint_layout import HASHES

MOST_PATHS = 20_000
_FORMAT_VERSION = 1
_MOST_BYTES = 64 << 20  # of the text in a record
_DIGITS = frozenset("0123456789abcdef")


@dataclass(frozen=True)
class TensorHashes:
    """The hash of each tensor by its path, and what is known of the data trained on.

    `frozen` says which tensors files of their own hold, and the SHA-256 over theirs.
    """

    tensors: Mapping[str, str]
    data: Mapping[str, Any] = field(default_factory=dict)
    frozen: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def digest(self) -> str:
        """One hash over all of them."""
        return _digest(self.tensors)[:32]

    def to_json(self) -> bytes:
        """Return the text of the file in a checkpoint."""
        document = {
            "format_version": _FORMAT_VERSION,
            "digest": self.digest,
            "data": dict(self.data),
            "frozen": dict(self.frozen),
            "tensors": dict(self.tensors),
        }
        return json.dumps(document, indent=0).encode()

    def to_record(self) -> str:
        """Return a short text for the record of a checkpoint."""
        tensors = bounded(self.tensors)
        document = {"digest": self.digest, "data": dict(self.data), "tensors": tensors}
        text = json.dumps(document, separators=(",", ":")).encode()
        return base64.b64encode(zlib.compress(text, 6)).decode()

    @classmethod
    def from_json(cls, text: bytes) -> TensorHashes:
        """Read what `to_json` wrote; ValueError if it is something else."""
        document = json.loads(text)
        if not isinstance(document, dict):
            raise ValueError(f"{str(document)[:50]!r} is no object")
        tensors = document.get("tensors")
        if not isinstance(tensors, dict) or not all(map(_is_hash, tensors.values())):
            raise ValueError("it has no hashes by path")
        data, frozen = document.get("data", {}), document.get("frozen", {})
        if not isinstance(data, dict) or not isinstance(frozen, dict):
            raise ValueError("`data` and `frozen` must be objects")
        return cls(tensors, data, frozen)

    @classmethod
    def from_record(cls, text: str) -> TensorHashes:
        """Read what `to_record` wrote; ValueError if it is something else."""
        try:
            unpacker = zlib.decompressobj()
            plain = unpacker.decompress(base64.b64decode(text, validate=True), _MOST_BYTES)
        except (binascii.Error, zlib.error) as error:
            raise ValueError(f"these are no hashes: {error}") from error
        if unpacker.unconsumed_tail:
            raise ValueError(f"it unpacks to more than {_MOST_BYTES:,} bytes")
        return cls.from_json(plain)


def _is_hash(value: object) -> bool:
    return isinstance(value, str) and len(value) == 16 and _DIGITS.issuperset(value)


def _digest(tensors: Mapping[str, str]) -> str:
    text = json.dumps(sorted(tensors.items()), separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def bounded(tensors: Mapping[str, str], most: int = MOST_PATHS) -> dict[str, str]:
    """Return at most so many hashes.

    Of the kind that has the most of them, those of the deepest paths are put together by what they
    are a part of, again and again.
    """
    result = dict(tensors)
    while len(result) > most:
        kinds = collections.Counter(path.partition("/")[0] for path in result if _depth(path))
        if not kinds:
            return {"": _digest(result)[:16]}
        kind = kinds.most_common(1)[0][0]
        inner = [path for path in result if path.partition("/")[0] == kind and _depth(path)]
        deepest = max(map(_depth, inner))
        groups: dict[str, dict[str, str]] = {}
        for path in [path for path in inner if _depth(path) == deepest]:
            groups.setdefault(_parent(path), {})[path] = result.pop(path)
        for parent, members in groups.items():
            if parent in result:
                members[parent] = result[parent]
            result[parent] = _digest(members)[:16]
    return result


def _depth(path: str) -> int:
    return path.count("/") + path.count(".")


def _parent(path: str) -> str:
    return path[: max(path.rfind("/"), path.rfind("."))]


def read_tensor_hashes(checkpoint: Path) -> TensorHashes | None:
    """Return the hashes in a checkpoint's folder; None if an earlier release wrote it."""
    try:
        text = (checkpoint / HASHES).read_bytes()
    except FileNotFoundError:
        return None
    return TensorHashes.from_json(text)


def tensor_hashes(checkpoint: str | Path) -> dict[str, str]:
    """Return the hash of each tensor in a checkpoint's folder, by path; empty if it has none."""
    found = read_tensor_hashes(Path(checkpoint))
    return {} if found is None else dict(found.tensors)
