"""Pickles that get code past restricted readers, as far as such readers were ever fooled."""

from __future__ import annotations

import io
import pickle
import struct
import tarfile
import zipfile
from collections.abc import Callable
from typing import Any

from determined.pytorch._checkpoint.files.encoding import TAG
from tests.support.hostile import torch_archive

RUNS = b"\x8c\x0etouch executed\x85R."  # calls what lies on the stack


def _text(text: str) -> bytes:
    return b"\x8c" + bytes([len(text)]) + text.encode()


def _global(module: str, name: str) -> bytes:
    """What the fourth protocol calls a global: both parts come from the stack."""
    return _text(module) + _text(name) + b"\x93"


def _memo_globals() -> bytes:
    """The names are assembled from the memo, where a scan for `GLOBAL` sees none."""
    parts = _text("system") + b"\x94" + _text("posix") + b"\x94" + b"00" + b"h\x01h\x00\x93"
    return b"\x80\x04" + parts + RUNS


def _nested() -> bytes:
    evil = b"\x80\x04" + _global("posix", "system") + RUNS
    data = b"B" + struct.pack("<I", len(evil)) + evil
    return b"\x80\x04" + _global("torch.storage", "_load_from_bytes") + data + b"\x85R."


def _of_type(function: bytes) -> bytes:
    """Has torch's helper for subclasses call a function."""
    arguments = function + function + _text("touch executed") + b"\x85}(t"
    return (
        b"\x80\x04" + _global("torch._tensor", "_rebuild_from_type_v2") + b"(" + arguments + b"R."
    )


def _array(kind: bytes, dtype: str, data: bytes) -> bytes:
    made = _global("numpy._core.multiarray", "_reconstruct") + b"(" + kind + b"K\x00\x85C\x01btR"
    typed = _global("numpy", "dtype") + _text(dtype) + b"\x89\x88\x87R"
    state = b"(K\x01K\x01\x85" + typed + b"\x89" + data + b"t"
    return b"\x80\x04" + made + state + b"b."


_SYSTEM = _global("posix", "system")
_RUNNING = b"\x80\x04" + _SYSTEM + RUNS
_NDARRAY = _global("numpy", "ndarray")

PICKLES: dict[str, bytes] = {
    "a dotted name through a module": b"\x80\x04"
    + _global("torch.serialization", "os.system")
    + RUNS,
    "a dotted name through a class": b"\x80\x04"
    + _global("collections", "OrderedDict.__reduce__.__class__")
    + RUNS,
    "globals of an allowed function": b"\x80\x04"
    + _global("torch._utils", "_rebuild_tensor_v2.__globals__")
    + b".",
    "names from the memo": _memo_globals(),
    "attributes by getattr": b"\x80\x04"
    + _global("builtins", "getattr")
    + _global("torch", "serialization")
    + _text("os")
    + b"\x86R.",
    "attributes by operator": b"\x80\x04"
    + _global("operator", "attrgetter")
    + _text("os.system")
    + b"\x85R"
    + _global("torch", "serialization")
    + b"\x85R"
    + RUNS,
    "a method by its caller": b"\x80\x04"
    + _global("operator", "methodcaller")
    + _text("system")
    + _text("touch executed")
    + b"\x86R"
    + _global("posix", "__dict__")
    + b"\x85R.",
    "copyreg": b"\x80\x04" + _global("copyreg", "_reconstructor") + _SYSTEM + RUNS,
    "the registry of extensions": b"\x80\x02\x82\x71" + RUNS,
    "an extension of two bytes": b"\x80\x02\x83\x71\x00" + RUNS,
    "a nested file": _nested(),
    "a subclass of tensors": _of_type(_SYSTEM),
    "a subclass that is a function of torch": _of_type(_global("torch", "hub.load")),
    "a wrapper of tensors": b"\x80\x04"
    + _global("torch._utils", "_rebuild_wrapper_subclass")
    + _SYSTEM
    + RUNS,
    "state for a class with __setstate__": b"\x80\x04"
    + _global("torch.nn", "Linear")
    + b")\x81}"
    + _text("forward")
    + _SYSTEM
    + b"sb.",
    "state that replaces a class": b"\x80\x04"
    + _global("collections", "OrderedDict")
    + b")R}"
    + _text("__class__")
    + _SYSTEM
    + b"sb.",
    "an array of a function": _array(_SYSTEM, "f8", b"C\x08" + bytes(8)),
    "an array of objects": _array(_NDARRAY, "O8", b"]" + _SYSTEM + b"a"),
    "an array of pointers": _array(_NDARRAY, "O8", b"C\x08" + bytes(8)),
    "an array of records": _array(_NDARRAY, "V8", b"C\x08" + bytes(8)),
    "a storage of a function": b"\x80\x04("
    + _text("storage")
    + _SYSTEM
    + b"\x8c\x010\x8c\x03cpuK\x01tQ.",
    "a storage elsewhere": b"\x80\x04("
    + _text("storage")
    + _global("torch", "FloatStorage")
    + _text("../../outside/precious")
    + b"\x8c\x03cpuK\x01tQ.",
    "a buffer from nowhere": b"\x80\x05\x97\x98.",
    "code behind the end": b"\x80\x04}." + _RUNNING,
    "a name with a line": b"\x80\x04" + _global("posix\nsystem", "x") + RUNS,
    "a name in another script": b"\x80\x04" + _global("p\u043esix", "system") + RUNS,
    "an import of the unpickler itself": b"\x80\x04"
    + _global("torch._weights_only_unpickler", "Unpickler")
    + RUNS,
    "permission for more": b"\x80\x04"
    + _global("torch.serialization", "add_safe_globals")
    + b"]"
    + _SYSTEM
    + b"a\x85R.",
}


# Files.


def _doubled(first: bytes, second: bytes) -> bytes:
    """An archive with two entries of one name: readers differ in which of them they take."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("archive/data.pkl", first)
        archive.writestr("archive/datb.pkl", second)
        archive.writestr("archive/version", "3\n")
    return buffer.getvalue().replace(b"datb.pkl", b"data.pkl")


def _legacy(at: int) -> bytes:
    """torch's oldest format but one: five pickles in a row, one of which runs something."""
    info = {"protocol_version": 1001, "little_endian": True, "type_sizes": {}}
    values: list[Any] = [0x1950A86A20F9469CFC6C, 1001, info, {}, []]
    parts = [pickle.dumps(value, 2) for value in values]
    parts[at] = _RUNNING
    return b"".join(parts)


def _tar() -> bytes:
    """torch's oldest format: a tar archive with pickles."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name in ("sys_info", "pickle", "storages", "tensors"):
            entry = tarfile.TarInfo(name)
            entry.size = len(_RUNNING)
            archive.addfile(entry, io.BytesIO(_RUNNING))
    return buffer.getvalue()


_PLAIN = pickle.dumps({"models_state_dict": [{}]}, 2)
FILES: dict[str, bytes] = {
    "two pickles, the first runs": _doubled(_RUNNING, _PLAIN),
    "two pickles, the second runs": _doubled(_PLAIN, _RUNNING),
    "a folder that leads out": torch_archive(_RUNNING).replace(b"archive/", b"../../x/"),
    **{f"the {n}th pickle of five": _legacy(at) for at, n in enumerate((1, 2, 3, 4, 5))},
    "a tar archive": _tar(),
    "an archive behind a script": b"#!/bin/sh\ntouch executed\n" + torch_archive(_RUNNING),
}


# Our own form for objects: plain values with tags.


def _made(name: Any, *arguments: Any, **more: Any) -> dict[str, Any]:
    whole = {"is_new": False, "keywords": {}, "state": None, "entries": None, "items": None}
    return {TAG: "made", "class": name, "arguments": arguments, **whole, **more}


def _generator(kind: str, change: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    import numpy as np

    bits = getattr(np.random, kind)()
    state: Any = bits.get_state(legacy=False) if kind == "RandomState" else dict(bits.state)
    state["state"] = dict(state["state"])
    change(state)
    return {TAG: "generator", "of": kind, "state": state}


def _position(at: int) -> Callable[[dict[str, Any]], None]:
    def change(state: dict[str, Any]) -> None:
        state["state"]["pos"] = at

    return change


def _itself() -> Any:
    inner: dict[str, Any] = {TAG: "tuple", "entries": []}
    inner["entries"].append(inner)
    return inner


TAGS: dict[str, Any] = {
    "a function that is called": _made("posix:system", "touch executed"),
    "a class that starts a process": _made("subprocess:Popen", ["touch", "executed"]),
    "a builtin that evaluates": _made("builtins:eval", "open('executed', 'w')"),
    "the class of classes": _made("builtins:type", "X", (), {}),
    "a method of an allowed class": _made("collections:OrderedDict.fromkeys", [1]),
    "the globals of a method": _made("random:Random.seed.__globals__", 1),
    "a class where it was imported to": _made("determined.storage:SharedFSStorageManager", "x"),
    "a class in a module that is not imported": _made("antigravity:Anything"),
    "a name that is no text": _made(["posix", "system"]),
    "a name without an end": _made("x" * 100_000),
    "a function of nobody": {TAG: "function", "class": "posix:system"},
    "an optimizer of nobody": {TAG: "stateful", "class": "torch.optim.sgd:SGD", "state": {}},
    "a factory that runs something": {
        TAG: "defaultdict",
        "entries": [],
        "setting": {TAG: "class", "class": "subprocess:Popen"},
    },
    "a part that runs something later": _made(
        "functools:partial", {TAG: "function", "class": "posix:system"}, "touch executed"
    ),
    "a layer of any size": _made("torch.nn.modules.linear:Linear", 4, 4),
    "a table as large as the memory": _made("torch.nn.modules.sparse:Embedding", 1 << 40, 1),
    "bytes as large as the memory": _made("builtins:bytearray", 1 << 50),
    "another class for an object": {
        TAG: "made",
        **_made("types:SimpleNamespace"),
        "state": ({}, {"__class__": {TAG: "class", "class": "argparse:Namespace"}}),
    },
    "a position outside of a generator": _generator("RandomState", _position(100_000)),
    "a position before a generator": _generator("MT19937", _position(-7)),
    "a buffer before a generator": _generator("Philox", lambda s: s.update(buffer_pos=-100)),
    "a generator of another module": {TAG: "generator", "of": "os", "state": {}},
    "a generator that is a function": {TAG: "generator", "of": "set_state", "state": {}},
    "objects without room": {TAG: "numpy objects", "shape": (1 << 40,), "entries": []},
    "a negative shape": {TAG: "numpy objects", "shape": (-1, -1), "entries": [1]},
    "times of objects": {TAG: "numpy", "code": "O", "data": None},
    "a type of objects": {TAG: "numpy dtype", "code": "O"},
    "a type of records": {TAG: "numpy dtype", "code": "i4,O"},
    "a tensor of a plain class": {
        TAG: "tensor",
        "class": "builtins:object",
        "tensor": None,
        "attributes": {},
    },
    "parts of a tensor of no such class": {
        TAG: "tensor",
        "class": "torch:Tensor",
        "parts": {},
        "settings": None,
        "size": (1,),
        "stride": (1,),
        "requires_grad": False,
    },
    "a constant of another kind": {TAG: "constant", "name": "__builtins__"},
    "a number that is none": {TAG: "int", "text": "__import__('os')"},
    "a tag that is unknown": {TAG: "exec", "code": "1"},
    "a tag that is a list": {TAG: ["made"]},
    "a list that claims to be a set": {TAG: "set", "class": "builtins:list", "entries": [1]},
    "an object without its parts": {TAG: "made", "class": "random:Random"},
    "a tuple in itself": _itself(),
}
