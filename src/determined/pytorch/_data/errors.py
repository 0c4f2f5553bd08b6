"""Errors of data that name it: which loader, which batch, and what the dataset is."""

from __future__ import annotations

import itertools
import logging
import traceback
from collections.abc import Iterator
from typing import Any

logger = logging.getLogger("determined.pytorch")

_HANDING_OVER = ("multiprocessing.connection", "multiprocessing.reduction")


def describe(dataset: Any) -> str:
    """Return the dataset's class, with its length where it has one."""
    length = sized(dataset)
    name = type(dataset).__name__
    return name if length is None else f"{name} ({length} samples)"


def sized(thing: Any) -> int | None:
    """Return `len(thing)`, or None if it has none."""
    # Wrappers pass the question on, and what they wrap may lack a length, or refuse to tell it.
    try:
        return len(thing)
    except (TypeError, NotImplementedError, AttributeError):
        return None


def add_note(error: BaseException, note: str) -> None:
    """Add a line to the error's traceback; Python 3.10 cannot, so there it is logged."""
    if hasattr(error, "add_note"):
        error.add_note(note)
    else:
        logger.error(note)


def name_the_batch(error: Exception, where: str, loader: Any) -> None:
    """Say which data could not be loaded: raise a clearer error, or add a note to this one."""
    text = str(error)
    if isinstance(error, RuntimeError) and text.startswith("DataLoader timed out"):
        raise RuntimeError(
            f"{where} got nothing from the loader's workers for {loader.timeout} seconds "
            "(`timeout`): one hangs or is slow. Set num_workers=0 to see where, or raise the "
            "timeout."
        ) from error
    if (loss := _loss_of_worker(error, loader)) is not None:
        raise RuntimeError(
            f"{where} lost a worker process of the loader: {loss} "
            "Lack of memory is the usual cause; num_workers=0 shows errors in the dataset."
        ) from error
    add_note(error, f"{where} could not be loaded.")


def _loss_of_worker(error: Exception, loader: Any) -> str | None:
    """Say how a worker was lost; None if the error is about something else."""
    text = str(error)
    if isinstance(error, RuntimeError) and text.startswith("DataLoader worker (pid"):
        return text.splitlines()[0]
    # A tensor is fetched from the worker that made it. While that one dies, torch may still take
    # it for alive and lets the error of the broken connection through.
    has_workers = bool(getattr(loader, "num_workers", 0))
    is_broken = isinstance(error, (EOFError, ConnectionError, FileNotFoundError, RuntimeError))
    if has_workers and is_broken and _is_raised_in(error, _HANDING_OVER):
        # Without its text: "connection reset" would make users look for another rank.
        return f"it died while handing over a batch ({type(error).__name__})."
    return None


def _is_raised_in(error: Exception, modules: tuple[str, ...]) -> bool:
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    return bool(frames) and frames[-1].f_globals.get("__name__") in modules


def naming_failed_batches(loader: Any, name: str) -> Iterator[Any]:
    """Yield the batches of a loader; an error names it and the batch."""
    iterator = iter(loader)
    for batch_idx in itertools.count():
        try:
            batch = next(iterator)
        except StopIteration:
            return
        except Exception as error:
            name_the_batch(error, f"{name}, at batch {batch_idx},", loader)
            raise
        yield batch


def empty_error(why: str) -> RuntimeError:
    """Return the error for training data without a single batch."""
    return RuntimeError(
        f"The loader from build_training_data_loader() gives no batches: {why}. "
        "Check the dataset's length, and batch_size if drop_last is set."
    )
