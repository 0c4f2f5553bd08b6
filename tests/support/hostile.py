"""Checkpoints by people who mean harm: their files agree with their manifest."""

from __future__ import annotations

import io
import json
import struct
import zipfile
from pathlib import Path
from typing import Any

import torch

from determined.storage import Contents, Manifest
from determined.storage._durable import digest_file
from determined.storage._manifest import _checksum, walk

SENTINEL = "executed"

# Every way in which a pickle can name something to run, byte by byte.
RAW_ATTACKS = {
    "reduce": b"cposix\nsystem\n(S'touch executed'\ntR.",
    "reduce after a state": b"(dS'a'\ncposix\nsystem\n(S'touch executed'\ntRs.",
    "instance": b"(S'touch executed'\niposix\nsystem\n.",
    "object": b"(cposix\nsystem\nS'touch executed'\no.",
    "stack global": b"\x80\x04\x8c\x05posix\x8c\x06system\x93\x8c\x0etouch executed\x85R.",
    "new object": b"\x80\x02cpathlib\nPath\n(S'executed'\nt\x81.",
    "new object with keywords": b"\x80\x04cpathlib\nPath\n(S'executed'\nt}\x92.",
    "build": b"\x80\x02ccollections\nOrderedDict\n)R}S'update'\ncposix\nsystem\nsb.",
    "extension": b"\x80\x02\x82\x01.",
    "persistent id": b"Pexecuted\n.",
    "eval": b'cbuiltins\neval\n(S\'open("executed", "w")\'\ntR.',
    "old eval": b'c__builtin__\neval\n(S\'open("executed", "w")\'\ntR.',
    "getattr": b"cbuiltins\ngetattr\n(cos\npath\nS'join'\ntR.",
    "partial": b"cfunctools\npartial\n(cposix\nsystem\nS'touch executed'\ntR)R.",
    "import": b"cimportlib\nimport_module\n(S'antigravity'\ntR.",
    "torch.load": b"ctorch\nload\n(S'state_dict.pth'\ntR.",
    "torch.hub": b"ctorch.hub\nload_state_dict_from_url\n(S'http://127.0.0.1:9/x'\ntR.",
    "numpy.load": b"cnumpy\nload\n(S'x.npy'\nNI01\ntR.",
    "subprocess": b"csubprocess\nPopen\n((lS'touch'\naS'executed'\natR.",
    "a file of ours": b"cdetermined.util\nwrite_user_code\n(S'executed'\nI00\ntR.",
}


def torch_archive(pickle_bytes: bytes, **records: bytes) -> bytes:
    """Return a file such as `torch.save` writes, with another pickle in it."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("archive/data.pkl", pickle_bytes)
        archive.writestr("archive/byteorder", "little")
        for name, content in records.items():
            archive.writestr(f"archive/{name}", content)
        archive.writestr("archive/version", "3\n")
    return buffer.getvalue()


def laughs(depth: int) -> bytes:
    """Return pickled code for a list of two lists of two lists ..., 2**depth in all."""
    outer = b"".join(b"]q" + bytes([n]) + b"(" for n in range(depth, 0, -1))
    return outer + b"]q\x00" + b"".join(b"h" + bytes([n]) + b"e" for n in range(depth))


def laughing_state(depth: int) -> bytes:
    """Return a pickled training state with such a list among the states of callbacks."""
    names = [
        b"X" + len(name).to_bytes(4, "little") + name
        for name in (b"models_state_dict", b"callbacks")
    ]
    return b"\x80\x02}(" + names[0] + b"]" + names[1] + laughs(depth) + b"u."


def laughing_counters(depth: int) -> bytes:
    """Return a pickled dictionary with such a list as a value."""
    return b"\x80\x02}X\x01\x00\x00\x00a" + laughs(depth) + b"s."


def laughing_keys(depth: int) -> bytes:
    """Return a pickled dictionary whose key is a tuple of tuples: its hash takes for ever."""
    tuples = b"".join(b"h%ch%c\x86q%c0" % (n, n, n + 1) for n in range(depth))
    return b"\x80\x02})q\x000" + tuples + b"h%cK\x01s." % depth


def forge(folder: Path, sequence: int = 99) -> None:
    """Write a manifest that vouches for the files as they are now."""
    (folder / "manifest.json").unlink(missing_ok=True)
    sizes = dict(walk(folder, folder.name))
    files = {path: digest_file(folder / path) for path in sizes if not path.endswith("/")}
    folders = frozenset(path for path in sizes if path.endswith("/"))
    manifest = Manifest(Contents(files, folders), sequence, steps_completed=99)
    (folder / "manifest.json").write_bytes(manifest.to_json())


def forged_manifest(**changes: Any) -> bytes:
    """Return a manifest with these entries and a checksum that fits."""
    document = {
        "format_version": 1,
        "created": "2024-01-01T00:00:00+00:00",
        "sequence": 99,
        "steps_completed": 99,
        "directories": [],
        "files": [],
        **changes,
    }
    return json.dumps({**document, "checksum": _checksum(document)}).encode()


def script_archive() -> bytes:
    """Return a TorchScript file, which `torch.load` would hand to another loader."""
    records = {"constants.pkl": b"\x80\x02).", "code/__torch__.py": b"import os\n"}
    return torch_archive(RAW_ATTACKS["reduce"], **records)


def claimed_storage(num_elements: int) -> bytes:
    """Return a torch archive whose one tensor claims more elements than the file has bytes."""
    buffer = io.BytesIO()
    torch.save({"models_state_dict": [{"w": torch.zeros(4)}]}, buffer)
    with zipfile.ZipFile(buffer) as archive:
        data = archive.read(next(n for n in archive.namelist() if n.endswith("data.pkl")))
    small, large = b"K\x04", b"\x8a\x05" + struct.pack("<q", num_elements)[:5]
    return torch_archive(data.replace(small, large), **{"data/0": bytes(16)})
