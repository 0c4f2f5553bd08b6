"""Files of a checkpoint, read without trusting them: bounded, checked, and nothing in them runs."""

from __future__ import annotations

import contextlib
import io
import pathlib
import pickle
import pickletools
import re
import zipfile
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from determined._contracts.checkpoint_layout import (
    COUNTER_FILES,
    METADATA,
    MODELS,
    OLD_MODEL,
    STATE_FILES,
    is_frozen_file,
)
from determined._version import __version__
from determined.errors import CheckpointNotFound, InvalidCheckpointException
from determined.pytorch._checkpoint.files.decoding import NotTrustedError, from_plain
from determined.pytorch._checkpoint.files.encoding import Living
from determined.pytorch._checkpoint.files.numpy_pickle import real_arrays, stand_ins
from determined.pytorch._checkpoint.files.trust import Trust, how_to_trust, own_classes
from determined.storage._manifest import load_json, read_json_file

# Counters are six numbers: a larger file is not one of ours.
_COUNTERS_LIMIT = 1 << 16
_JSON_LIMIT = 16 << 20
_ZIP_MAGIC = b"PK\x03\x04"

FROZEN = "determined.frozen"
"""The key by which a description of a tensor names the file that has it."""


def state_file(path: pathlib.Path) -> pathlib.Path:
    """Return the file with the tensors, wherever the release that wrote it put it."""
    for name in STATE_FILES:
        if (path / name).is_file():
            return path / name
    raise CheckpointNotFound(
        f"{path} is not a checkpoint: it has none of {', '.join(STATE_FILES)}."
    )


def read_json(file: pathlib.Path) -> dict[str, Any] | None:
    """Return the object in a JSON file, or None if there is no such file."""
    text = read_json_file(file, str(file), limit=_JSON_LIMIT)
    return None if text is None else load_json(text, str(file))


class _PlainUnpickler(pickle.Unpickler):
    """Reads plain containers of plain values; anything else is refused, never imported."""

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"it holds a {module}.{name}")


def read_counters(path: pathlib.Path) -> dict[str, int] | None:
    """Return the counters that a checkpoint stores, or None if it has none (0.13 and before)."""
    for name in COUNTER_FILES:
        file = path / name
        if not file.exists():
            continue
        try:
            if file.stat().st_size > _COUNTERS_LIMIT:
                raise pickle.UnpicklingError(f"it has {file.stat().st_size:,} bytes")
            content = file.read_bytes()
            _check_flat(content)
            counters = _PlainUnpickler(io.BytesIO(content)).load()
            return {str(key): _count(value) for key, value in counters.items() if value is not None}
        except Exception as e:  # a damaged pickle may raise anything
            raise InvalidCheckpointException(
                f"{file} should hold a dictionary of counters: {e}. It was not used."
            ) from e
    return None


def _check_flat(content: bytes) -> None:
    """Refuse tuples and the like: nested deeply enough, such a key takes forever to hash."""
    for opcode, _, _ in pickletools.genops(content):
        if {"tuple", "list", "set", "frozenset"} & {kind.name for kind in opcode.stack_after}:
            raise pickle.UnpicklingError("it contains more than numbers by name")


def _count(value: object) -> int:
    if not isinstance(value, int) or not 0 <= value < 1 << 63:
        what = f"the number {value}" if isinstance(value, int) else f"a {type(value).__name__}"
        raise pickle.UnpicklingError(f"it holds {what[:50]}")
    return value


def read_tensors(
    file: pathlib.Path | io.BytesIO, allow_pickle: bool = False, **load_options: Any
) -> Any:
    """Load a torch file without running code from it, unless `allow_pickle` says so."""
    options = {"map_location": "cpu", "weights_only": not allow_pickle, **load_options}
    try:
        if isinstance(file, pathlib.Path) and _is_archive(file):
            _check_archive(file)
            if _is_utf8(file):
                options.setdefault("mmap", True)  # the ranks of a machine share what is read
        with _as_torch_reads_it(file) as source:
            if not options["weights_only"]:
                return torch.load(source, **options)
            with _numpy_read_with_care():
                registered = torch.serialization.get_safe_globals()
                trusted = [kind for kind in registered if isinstance(kind, type)]
                return real_arrays(torch.load(source, **options), trusted)
    except FileNotFoundError as e:
        raise CheckpointNotFound(f"There is no file {file}.") from e
    except pickle.UnpicklingError as e:
        raise InvalidCheckpointException(_refusal(file, e)) from e
    except Exception as e:  # a damaged file may raise anything
        raise InvalidCheckpointException(f"{file} cannot be read: {_first_line(e)}") from e


def read_state(path: pathlib.Path, allow_pickle: bool, **load_options: Any) -> dict[str, Any]:
    """Load the training state of a checkpoint: models by name, at least."""
    file = state_file(path)
    try:
        checkpoint = read_dict(file, allow_pickle, **load_options)
    except InvalidCheckpointException as e:
        raise InvalidCheckpointException(f"{e}{_other_versions(path)}") from e
    models = checkpoint.get(MODELS, [checkpoint.get(OLD_MODEL)])
    if not isinstance(models, (list, tuple)) or not all(map(_is_state_dict, models)):
        raise InvalidCheckpointException(
            f"{file} holds no training state: `{MODELS}` must be a list of dictionaries of "
            "weights "
            "by name."
        )
    return _join_frozen(path, checkpoint, allow_pickle, load_options)


def _join_frozen(
    path: pathlib.Path,
    checkpoint: dict[str, Any],
    allow_pickle: bool,
    load_options: Mapping[str, Any],
) -> dict[str, Any]:
    """Put the weights that files of their own have into the place of their descriptions."""
    files: dict[str, dict[str, Any]] = {}
    for model in checkpoint.get(MODELS, []):
        for name, value in model.items():
            if not isinstance(value, dict) or FROZEN not in value:
                continue
            file, key = value[FROZEN], value.get("tensor")
            if not is_frozen_file(file):
                raise InvalidCheckpointException(
                    f"{path} says that {str(file)[:80]!r} holds {str(name)[:80]}, which is no file "
                    "of a checkpoint."
                )
            if file not in files:
                files[file] = read_dict(path / file, allow_pickle, **load_options)
            tensor = files[file].get(key) if isinstance(key, str) else None
            if not isinstance(tensor, torch.Tensor):
                raise InvalidCheckpointException(
                    f"{path / file} does not hold {str(key)[:80]}, which {str(name)[:80]} is. Was "
                    "the file replaced by that of another checkpoint?"
                )
            model[name] = tensor
    return checkpoint


def make_objects(
    state: Any, file: pathlib.Path, trust: Trust, living: Callable[[], Living] = Living
) -> Any:
    """Return the state of a file with the objects in it that were written as plain values.

    `living` returns what the program has of what cannot be in a file; it is asked if needed.
    """
    try:
        return from_plain(state, trust, living)
    except NotTrustedError as e:
        raise InvalidCheckpointException(_why_not_made(file, e)) from None
    except Exception as e:  # a made-up file may have anything anywhere
        raise InvalidCheckpointException(f"{file} cannot be read: {_first_line(e)}") from e


def _why_not_made(file: pathlib.Path, error: NotTrustedError) -> str:
    if error.classes:
        return (
            f"{file} was not loaded: it holds objects of {', '.join(error.classes)}. To have "
            f"objects of these classes made, and nothing else run: {how_to_trust(error.classes)}."
        )
    return (
        f"{file} was not loaded: a state in it holds {', '.join(error.missing)}, which is taken "
        "from the running program, and the program has it no more in a state of the same kind."
    )


def _other_versions(path: pathlib.Path) -> str:
    """Return a sentence on what wrote a checkpoint, if that is not what reads it."""
    try:
        metadata = read_json(path / METADATA) or {}
    except InvalidCheckpointException:
        return ""
    wrote = [str(metadata.get(key))[:50] for key in ("determined_version", "framework")]
    reads = [__version__, f"torch-{torch.__version__}"]
    if wrote == reads or "None" in wrote:
        return ""
    return (
        f" It was written by determined {wrote[0]} with {wrote[1]}, and this is determined "
        f"{reads[0]} with {reads[1]}."
    )


def read_dict(file: pathlib.Path, allow_pickle: bool, **load_options: Any) -> dict[str, Any]:
    """Load a torch file that holds a dictionary."""
    values = read_tensors(file, allow_pickle, **load_options)
    if not isinstance(values, dict):
        raise InvalidCheckpointException(
            f"{file} holds a {type(values).__name__}, not a dictionary."
        )
    return values


def _is_state_dict(value: object) -> bool:
    return isinstance(value, Mapping) and all(isinstance(name, str) for name in value)


def unsafe_names(file: pathlib.Path | io.BytesIO) -> list[str]:
    """Return the classes and functions for which `read_tensors` would refuse a torch file."""
    with _numpy_read_with_care():
        return sorted(torch.serialization.get_unsafe_globals_in_checkpoint(file))


def _refusal(file: pathlib.Path | io.BytesIO, error: Exception) -> str:
    try:
        names = unsafe_names(file)
    except Exception:  # only one of the two formats can be searched; the error names the first one
        names = re.findall(r"GLOBAL (\S+)", str(error))
    if not names:
        return f"{file} cannot be read: {_first_line(error)}"
    own = own_classes(names)
    if own is not None:
        return (
            f"{file} was not loaded: it holds objects of {', '.join(names)}, which are classes of "
            f"your own. To allow these, and nothing else: {how_to_trust(own)}."
        )
    return (
        f"{file} was not loaded: it needs {', '.join(names)}, and loading that could run code from "
        "the file. If you trust where it comes from, pass allow_pickle=True to pytorch.init (or "
        "to load_trial_from_checkpoint_path)."
    )


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    # torch explains its own options first, and the problem last.
    details = [line for line in lines if "WeightsUnpickler error:" in line]
    return (details or lines or [type(error).__name__])[0][:300]


def _is_utf8(file: pathlib.Path) -> bool:
    try:
        str(file).encode()
    except UnicodeEncodeError:
        return False
    return True


@contextlib.contextmanager
def _as_torch_reads_it(file: pathlib.Path | io.BytesIO) -> Iterator[Any]:
    """Open a file whose path is not UTF-8: torch takes no such path."""
    if isinstance(file, pathlib.Path) and not _is_utf8(file):
        with file.open("rb") as opened:
            yield opened
    else:
        yield file


def _is_archive(file: pathlib.Path) -> bool:
    with file.open("rb") as opened:
        return opened.read(len(_ZIP_MAGIC)) == _ZIP_MAGIC


def _check_archive(file: pathlib.Path) -> None:
    """Refuse what torch never writes: an archive that grows when it is unpacked."""
    with zipfile.ZipFile(file) as archive:
        entries = archive.infolist()
    if any(entry.compress_type != zipfile.ZIP_STORED for entry in entries):
        raise ValueError("it is compressed, which torch.save never does")
    if len({entry.filename for entry in entries}) != len(entries):
        raise ValueError("two of its parts have the same name")
    if sum(entry.file_size for entry in entries) > file.stat().st_size:
        raise ValueError("its parts claim more bytes than it has")


@contextlib.contextmanager
def _numpy_read_with_care() -> Iterator[None]:
    """Have torch read numpy data through our stand-ins, whatever else is registered for it."""
    registered = torch.serialization.get_safe_globals()
    others = [entry for entry in registered if not _is_of_numpy(entry)]
    torch.serialization.clear_safe_globals()
    torch.serialization.add_safe_globals([*others, *stand_ins()])
    try:
        yield
    finally:
        torch.serialization.clear_safe_globals()
        torch.serialization.add_safe_globals(registered)


def _is_of_numpy(entry: Any) -> bool:
    name = entry[1] if isinstance(entry, tuple) else entry.__module__
    return str(name).partition(".")[0] == "numpy"
