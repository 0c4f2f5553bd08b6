"""`torch.simulated`: what torch asks of the module of a device, and what our tests ask."""

from __future__ import annotations

import collections
import contextlib
import gc
import threading
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import simulated_device as _library  # type: ignore[import-not-found]  # `load` puts it there
import torch

_Where = torch.device | str | int | None

# What torch asks for.

device_count: Callable[[], int] = _library.device_count
current_device: Callable[[], int] = _library.current_device
is_initialized: Callable[[], bool] = _library.is_initialized
_is_in_bad_fork: Callable[[], bool] = _library.is_in_bad_fork
Stream, Event = torch.Stream, torch.Event


def is_available() -> bool:
    return device_count() > 0


def init() -> None:
    """Do nothing: the first tensor initialises the device."""


def _index(device: _Where) -> int:
    if device is None:
        return current_device()
    index = device if isinstance(device, int) else torch.device(device).index
    return current_device() if index is None else index


def set_device(device: _Where) -> None:
    _library.set_device(_index(device))


class device:
    """The current device inside `with`."""

    def __init__(self, device: _Where) -> None:
        self._index = _index(device)

    def __enter__(self) -> None:
        self._outer = current_device()
        set_device(self._index)

    def __exit__(self, *exception: object) -> None:
        set_device(self._outer)


def synchronize(device: _Where = None) -> None:
    torch.accelerator.synchronize(_index(device))


def set_sync_debug_mode(mode: int | str) -> None:
    """Warn wherever the host waits, or stop doing so, as `torch.cuda` does."""

    def warn(why: str) -> None:
        warnings.warn(f"called a synchronizing operation ({why})", stacklevel=2)

    _library.on_wait(None if mode in (0, "default") else warn)


def current_stream(device: _Where = None) -> torch.Stream:
    return torch.accelerator.current_stream(_index(device))


def set_stream(stream: torch.Stream) -> None:
    torch.accelerator.set_stream(stream)


def stream(stream: torch.Stream | None) -> contextlib.AbstractContextManager[Any]:
    return contextlib.nullcontext() if stream is None else stream


def get_device_name(device: _Where = None) -> str:
    return f"Simulated accelerator {_index(device)}"


def get_amp_supported_dtype() -> list[torch.dtype]:
    return [torch.float16, torch.bfloat16]


_generators: dict[int, torch.Generator] = {}


def _generator(device: _Where) -> torch.Generator:
    index = _index(device)
    if index not in _generators:
        _generators[index] = _library.default_generator(index)
    return _generators[index]


def get_rng_state(device: _Where = None) -> torch.Tensor:
    return _generator(device).get_state()


def set_rng_state(state: torch.Tensor, device: _Where = None) -> None:
    _generator(device).set_state(state)


def get_rng_state_all() -> list[torch.Tensor]:
    return [get_rng_state(index) for index in range(device_count())]


def set_rng_state_all(states: Iterable[torch.Tensor]) -> None:
    for index, state in enumerate(states):
        set_rng_state(state, index)


def manual_seed(seed: int) -> None:
    _generator(None).manual_seed(int(seed))


def manual_seed_all(seed: int) -> None:
    for index in range(device_count()):
        _generator(index).manual_seed(int(seed))


def initial_seed() -> int:
    return _generator(None).initial_seed()


def memory_allocated(device: _Where = None) -> int:
    used: int = _library.memory(_index(device))[0]
    return used


def max_memory_allocated(device: _Where = None) -> int:
    peak: int = _library.memory(_index(device))[1]
    return peak


def mem_get_info(device: _Where = None) -> tuple[int, int]:
    used, _, limit, _ = _library.memory(_index(device))
    return limit - used, limit


def empty_cache() -> None:
    """Do nothing: freed memory is not kept."""


# What the tests ask for.


def counters() -> collections.Counter[str]:
    """Return how many kernels, copies and waits of the host there were since `reset_counters`.

    `synchronizations` are all waits; `synchronizations.WHY` tells them apart: device, stream,
    event, item, copy_to_host, copy_to_device (both blocking), result (whose size the host needs).
    `copies.to_host` and `copies.to_device` count all, `....non_blocking` those that may be late.
    """
    return collections.Counter(_library.counters())


def reset_counters() -> None:
    _library.reset_counters()


@contextlib.contextmanager
def watched_waits() -> Iterator[list[tuple[str, str, str]]]:
    """Collect why the host waited inside `with`, the stack at that moment, and the thread."""
    waits: list[tuple[str, str, str]] = []

    def note(why: str) -> None:
        stack = "".join(traceback.format_stack())
        waits.append((why, stack, threading.current_thread().name))

    _library.on_wait(note)
    try:
        yield waits
    finally:
        _library.on_wait(None)


@contextlib.contextmanager
def limited_memory(num_bytes: int, device: _Where = None) -> Iterator[None]:
    """Let the device have so many bytes inside `with`, those in use included."""
    index = _index(device)
    before = _library.memory(index)[2]
    _library.set_limit(index, num_bytes)
    try:
        yield
    finally:
        _library.set_limit(index, before)


def fail_allocation(after: int, device: _Where = None) -> None:
    """Let one allocation run out of memory, after so many that succeed; -1 takes it back."""
    _library.fail_in(_index(device), after)


def num_allocations(device: _Where = None) -> int:
    """Return how many allocations the device has served."""
    number: int = _library.memory(_index(device))[3]
    return number


def num_pending_copies() -> int:
    """Return how many non-blocking copies have been asked for and are not done."""
    number: int = _library.num_pending()
    return number


def take_violations() -> list[str]:
    """Return and forget what was done wrong where nothing could be raised."""
    found: list[str] = _library.take_violations()
    return found


def live_serials() -> set[int]:
    """Return the serial number of every allocation that is alive, on both devices."""
    return {serial for serial, *_ in _library.live()}


def left_behind(before: set[int]) -> list[str]:
    """Describe the memory that is alive now and was not among the serials `before`."""
    gc.collect()
    known = {
        value.untyped_storage().data_ptr(): f"{type(value).__name__} {tuple(value.shape)}"
        for value in gc.get_objects()
        if issubclass(type(value), torch.Tensor) and value.device.type == "simulated"
    }
    return [
        f"{size} bytes on device {index}: {known.get(address, 'no tensor of Python')}"
        for serial, index, address, size in _library.live()
        if serial not in before
    ]
