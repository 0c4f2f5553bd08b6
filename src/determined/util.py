"""Small helpers, under the names users import them by. No torch; numpy only where it is used."""

from __future__ import annotations

import enum
import errno
import inspect
import json
import logging
import math
import numbers
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from determined.common.check import CheckFailedError
from determined.errors import InvalidExperimentException

logger = logging.getLogger("determined")

_ON_CLUSTER_CODE = Path("/run/determined/train/model")


def make_metrics(num_inputs: int | None, batch_metrics: list[dict[str, Any]]) -> dict[str, Any]:
    """Average the metrics of many batches.

    Returns `batch_metrics` as given and `avg_metrics`: per name the mean of all values that are not
    None, or None where there is no mean (strings, ragged arrays). All batches need equal names.
    """
    names = list(batch_metrics[0]) if batch_metrics else []
    for batch_idx, metrics in enumerate(batch_metrics):
        if metrics.keys() != batch_metrics[0].keys():
            raise CheckFailedError(
                "Every batch must report the same metrics: "
                f"batch 0 has {sorted(names, key=str)}, "
                f"batch {batch_idx} has {sorted(metrics, key=str)}."
            )
    averages = {name: _mean([metrics[name] for metrics in batch_metrics]) for name in names}
    result: dict[str, Any] = {"batch_metrics": batch_metrics, "avg_metrics": averages}
    if num_inputs is not None:
        result["num_inputs"] = num_inputs
    return result


def _mean(values: list[Any]) -> float | None:
    import numpy as np

    present = [value for value in values if value is not None]
    try:
        array = np.asarray(present)
        if array.size == 0 or array.dtype.kind == "c":  # the mean would be nothing, or two numbers
            return None
        with np.errstate(all="ignore"):
            return float(np.mean(array))
    except (TypeError, ValueError, OverflowError):
        return None


def calculate_batch_sizes(
    hparams: dict[str, Any], slots_per_trial: int, trialname: str
) -> tuple[int, int]:
    """Split hyperparameter `global_batch_size` over the slots.

    Returns the size per slot, rounded down, and the global size that results from it.
    """
    slots = max(slots_per_trial, 1)
    if "global_batch_size" not in hparams:
        raise InvalidExperimentException(
            f"{trialname} needs the hyperparameter `global_batch_size` (an integer)."
        )
    wanted = hparams["global_batch_size"]
    if not isinstance(wanted, numbers.Integral) or isinstance(wanted, bool):
        raise InvalidExperimentException(
            f"The hyperparameter `global_batch_size` must be an integer, got {wanted!r}."
        )
    if wanted < slots:
        raise InvalidExperimentException(
            f"The hyperparameter `global_batch_size` must be at least the number of slots "
            f"({slots}), got {wanted}."
        )
    per_slot = int(wanted) // slots
    effective = per_slot * slots
    if effective != wanted:
        logger.warning(
            "global_batch_size %d is not a multiple of %d slots: using %d per slot, %d in total.",
            wanted,
            slots,
            per_slot,
            effective,
        )
    return per_slot, effective


def is_overridden(full_method: Any, parent_class: type) -> bool:
    """Whether a method is another function than the one `parent_class` has under its name."""
    if not callable(full_method):
        return False
    inherited = getattr(parent_class, getattr(full_method, "__name__", ""), None)
    function = getattr(full_method, "__func__", full_method)
    return function is not getattr(inherited, "__func__", inherited)


def has_param(fn: Callable[..., Any], name: str, pos: int | None = None) -> bool:
    """Whether a function takes `name` by position, or has a parameter at position `pos`.

    Bound methods count `self`. Decorators that keep `__wrapped__` are looked through.
    """
    spec = inspect.getfullargspec(inspect.unwrap(fn))
    if name in spec.args:
        return True
    return pos is not None and (pos < len(spec.args) or spec.varargs is not None)


def get_member_func(obj: Any, func_name: str) -> Callable[..., Any] | None:
    """The method of that name, or None if there is none that can be called."""
    member = getattr(obj, func_name, None)
    return member if callable(member) else None


def is_numerical_scalar(n: Any) -> bool:
    """Whether `n` is one real number: Python's, numpy's, or a numpy array without dimensions.

    An integer that is too large for any float is none.
    """
    if isinstance(n, int):
        return -sys.float_info.max <= n <= sys.float_info.max
    if isinstance(n, float):
        return True
    np = sys.modules.get("numpy")  # not imported: then it is no numpy value
    if np is None or not isinstance(n, (np.generic, np.ndarray)):
        return False
    return n.ndim == 0 and n.dtype.kind in "biuf"


def make_timing_log(verb: str, duration: float, num_inputs: int, num_batches: int) -> str:
    """One line on how long something took, for example after a validation."""
    records_rate, batches_rate = (
        count / duration if duration > 0 else math.inf for count in (num_inputs, num_batches)
    )
    return (
        f"{verb}: {num_inputs} records in {_rounded(duration)}s ({_rounded(records_rate)} "
        f"records/s), in {num_batches} batches ({_rounded(batches_rate)} batches/s)"
    )


def _rounded(value: float) -> str:
    """About four significant digits, but never less than the whole integer part."""
    if math.isinf(value) or abs(value) >= 1000:
        return f"{value:.0f}"
    return f"{value:.4g}"


def json_encode(obj: Any, indent: int | None = None, sort_keys: bool = False) -> str:
    """Encode as strict JSON: NaN and infinities become strings, arrays lists, enums their names.

    An object may offer `__json__()`, which returns something that can be encoded.
    """
    return json.dumps(_plain(obj), indent=indent, sort_keys=sort_keys, allow_nan=False)


def _plain(value: Any) -> Any:
    if isinstance(value, enum.Enum):
        return value.name
    if isinstance(value, float):
        if math.isnan(value):
            return "NaN"
        if math.isinf(value):
            return "Infinity" if value > 0 else "-Infinity"
        return float(value)
    if value is None or isinstance(value, (str, int)):
        return value
    if isinstance(value, Mapping):
        return {_plain(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if hasattr(value, "__json__"):
        return _plain(value.__json__())
    if hasattr(value, "tolist"):  # numpy arrays and scalars, torch tensors
        return _plain(value.tolist())
    raise TypeError(f"Cannot encode {type(value).__name__} as JSON: {value!r}.")


def write_user_code(path: Path, on_cluster: bool, exclude: Iterable[Path] = ()) -> None:
    """Copy the trial's code to `path`/code, replacing what is there.

    `_code/user_code.py` says what is left out; `exclude` names further directories.
    """
    from determined._code.user_code import copy_user_code

    destination = Path(path) / "code"
    if destination.exists():
        rmtree_nfs_safe(destination)
    copy_user_code(_ON_CLUSTER_CODE if on_cluster else Path.cwd(), destination, exclude)


def rmtree_nfs_safe(
    path: str | os.PathLike[str],
    ignore_errors: bool = False,
    onerror: Callable[[Callable[..., Any], str, Any], Any] | None = None,
) -> None:
    """Remove a directory tree, also where NFS keeps `.nfs*` files alive for a moment.

    NFS renames a file that is deleted while open, so its directory is busy until it is closed.
    What still fails then goes to `onerror(function, path, exc_info)` as in `shutil.rmtree`, if it
    is given and errors are not ignored.
    """
    for pause_seconds in (0.1, 0.2, 0.4, 0.8, None):
        try:
            shutil.rmtree(path)
            return
        except OSError as error:
            busy = error.errno in (errno.ENOTEMPTY, errno.EBUSY, errno.EEXIST)
            if busy and pause_seconds is not None:
                time.sleep(pause_seconds)
                continue
            if not ignore_errors and onerror is not None:
                onerror(shutil.rmtree, os.fspath(path), sys.exc_info())
                return
            if not ignore_errors:
                raise
            logger.warning("Could not remove %s: %s.", path, error)
            return


def force_create_symlink(src: str | os.PathLike[str], dst: str | os.PathLike[str]) -> None:
    """Make `dst` a symbolic link to `src`, in place of what is there; a directory only if empty."""
    link = Path(dst)
    if link.is_dir() and not link.is_symlink():
        link.rmdir()
    fresh = link.with_name(f".{link.name}.{os.getpid()}")
    fresh.symlink_to(src)
    fresh.replace(link)


def merge_dicts(base: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Return `base` with the values of `overrides`; dictionaries in both are merged in turn."""
    merged = dict(base)
    for key, value in overrides.items():
        inner = merged.get(key)
        both = isinstance(inner, Mapping) and isinstance(value, Mapping)
        merged[key] = merge_dicts(inner, value) if both else value  # type: ignore[arg-type]  # both
    return merged


def download_gcs_blob_with_backoff(blob: Any, n_retries: int = 32, max_backoff: int = 32) -> bytes:
    """Return the bytes of a blob of google-cloud-storage, trying again after errors.

    Waits 1, 2, 4, ... up to `max_backoff` seconds in between; the last of `n_retries` errors comes
    out.
    """
    download = getattr(blob, "download_as_bytes", None) or blob.download_as_string
    for attempt in range(max(1, n_retries)):
        try:
            return bytes(download())
        except Exception as error:
            if attempt + 1 >= n_retries:
                raise
            pause_seconds = min(2**attempt, max_backoff)
            logger.warning("A download failed (%s); trying again in %d s.", error, pause_seconds)
            time.sleep(pause_seconds)
    raise AssertionError("the last attempt returns or raises")
