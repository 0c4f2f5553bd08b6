"""Randomness as a function of numbers: mixing, seeding, capturing and swapping generator states."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import random
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import Any

import numpy as np
import torch

from determined.pytorch._checkpoint.state.numpy_states import checked

logger = logging.getLogger("determined.pytorch")


def mix(*numbers: int) -> int:
    """Hash integers into one of 63 bits, the same in every process and on every machine."""
    text = ",".join(map(str, numbers)).encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little") >> 1


def seed_everything(seed: int) -> None:
    """Seed `random`, numpy's global generator, and torch on the CPU and all accelerators."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)


def seed_cpu(seed: int) -> None:
    """Seed what code on the CPU draws from; a hundred times cheaper than `seed_everything`."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.default_generator.manual_seed(seed)


def _numpy_state() -> tuple[Any, ...]:
    name, keys, position, has_gauss, cached = np.random.get_state()
    words = torch.from_numpy(np.asarray(keys).astype(np.int64))
    return str(name), words, int(position), int(has_gauss), float(cached)


def _accelerator_state() -> Any:
    return torch.get_device_module().get_rng_state()


def _other_devices() -> list[int]:
    """Return the devices of this process besides its current one: a trial may draw on them too."""
    if not torch.accelerator.is_available() or torch.accelerator.device_count() < 2:
        return []
    current = torch.accelerator.current_device_index()
    return [index for index in range(torch.accelerator.device_count()) if index != current]


# How to read each global generator.
RNG_STATES: dict[str, Callable[[], Any]] = {
    "cpu_rng_state": torch.get_rng_state,
    "np_rng_state": _numpy_state,
    "random_rng_state": random.getstate,
    "gpu_rng_state": _accelerator_state,
}
_CPU_STATES = RNG_STATES.keys() - {"gpu_rng_state"}
_OTHERS = "other_gpu_rng_states"  # in the order of their numbers, whichever is the current one


def rng_state() -> dict[str, Any]:
    """Return the state of all global generators, in types that `weights_only` loading accepts."""
    has_accelerator = torch.accelerator.is_available()
    state = {
        name: read()
        for name, read in RNG_STATES.items()
        if has_accelerator or name != "gpu_rng_state"
    }
    if others := _other_devices():
        state[_OTHERS] = [torch.get_device_module().get_rng_state(index) for index in others]
    return state


def set_rng_state(state: dict[str, Any]) -> None:
    """Restore what `rng_state` returned; numpy's own tuple and lists for tuples are fine too.

    A generator that the state does not mention keeps its own, with a warning.
    """
    missing = _CPU_STATES - state.keys()
    if missing:
        logger.warning("The saved random state lacks %s: not restored.", ", ".join(sorted(missing)))
    _set_cpu_state(state)
    _set_accelerator_state(state.get("gpu_rng_state"), state.get(_OTHERS, []))


def _set_cpu_state(state: dict[str, Any]) -> None:
    if "random_rng_state" in state:
        version, words, gauss = state["random_rng_state"]
        random.setstate((version, tuple(words), gauss))
    if "np_rng_state" in state:
        name, keys, *rest = checked(state["np_rng_state"])
        np.random.set_state((name, np.asarray(keys).astype(np.uint32), *rest))
    if "cpu_rng_state" in state:
        torch.set_rng_state(torch.as_tensor(state["cpu_rng_state"], dtype=torch.uint8))


def _set_accelerator_state(
    saved: torch.Tensor | None, saved_others: Sequence[torch.Tensor]
) -> None:
    present = torch.accelerator.is_available()
    if present and saved is not None:
        module = torch.get_device_module()
        try:
            module.set_rng_state(saved.cpu())
            # A machine may have more or fewer of them; a trial that needs one that is gone fails.
            for index, state in zip(_other_devices(), saved_others, strict=False):
                module.set_rng_state(state.cpu(), index)
        except (RuntimeError, TypeError):  # of other sizes and types on each kind of device
            logger.warning(
                "The checkpoint has another kind of accelerator's random state: this one's starts "
                "afresh."
            )
    elif present:
        logger.warning(
            "The checkpoint was saved without an accelerator: the accelerator's random state "
            "starts afresh."
        )
    elif saved is not None:
        logger.warning(
            "The checkpoint has an accelerator's random state, but there is no accelerator."
        )


class PrivateRNG:
    """Global CPU generators of one's own: active inside `with`, set aside outside it.

    Entering again continues where the last block stopped, so a sampler read in several pieces
    draws the same numbers as one read in a single go.
    """

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._mine: tuple[Any, Any, torch.Tensor] | None = None
        self._outer: list[tuple[Any, Any, torch.Tensor]] = []

    def __enter__(self) -> PrivateRNG:
        self._outer.append(_cpu_states())
        if self._mine is None:
            seed_cpu(self._seed)
        else:
            _set_cpu_states(self._mine)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._mine = _cpu_states()
        _set_cpu_states(self._outer.pop())

    def state_dict(self) -> dict[str, Any]:
        """Return where the generators are, in types that `weights_only` loading accepts."""
        with self:
            return {name: RNG_STATES[name]() for name in _CPU_STATES}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where the generators were that gave `state`."""
        with self:
            _set_cpu_state(state)


@contextlib.contextmanager
def forked_rng(seed: int) -> Iterator[None]:
    """Run the block under `random`, numpy and torch CPU generators seeded with `seed`."""
    outer = _cpu_states()
    seed_cpu(seed)
    try:
        yield
    finally:
        _set_cpu_states(outer)


@contextlib.contextmanager
def apart_from_training(seed: int) -> Iterator[None]:
    """Run the block under generators seeded with `seed`, those of all devices included.

    Training's own continue after it as if the block had not run.
    """
    outer = rng_state()
    seed_cpu(seed)
    if torch.accelerator.is_available():
        module = torch.get_device_module()
        getattr(module, "manual_seed_all", module.manual_seed)(seed)
    try:
        yield
    finally:
        set_rng_state(outer)


def seeded_rng_state(seed: int) -> dict[str, Any]:
    """Return the state that all global generators have after seeding, and leave them alone."""
    with apart_from_training(seed):
        return rng_state()


def _cpu_states() -> tuple[Any, Any, torch.Tensor]:
    return random.getstate(), np.random.get_state(), torch.get_rng_state()


def _set_cpu_states(states: tuple[Any, Any, torch.Tensor]) -> None:
    random.setstate(states[0])
    np.random.set_state(states[1])
    torch.set_rng_state(states[2])
