"""The values that reducers have collected, as bytes to keep and to continue from."""

from __future__ import annotations

import copy
import io
from collections.abc import Sequence
from typing import Any

import torch

from determined.pytorch._checkpoint.files.reading import read_tensors, unsafe_names
from determined.pytorch._metrics.reducer import MetricReducer, _SimpleReducer


def dump_reducers(reducers: Sequence[MetricReducer]) -> bytes:
    """Return the state of one slot's reducers; TypeError if it is more than plain data.

    A reducer's state is its `state_dict()` if it has one, else its attributes: tensors, arrays,
    numbers, strings, and containers of them.
    """
    try:
        states = [_state_of(reducer) for reducer in reducers]
    except Exception as error:  # whatever a user's method may raise
        raise TypeError(str(error)) from error
    return dump_plain(states)


def dump_plain(value: Any) -> bytes:
    """Return a value as bytes; TypeError if it is more than tensors, arrays and plain data."""
    buffer = io.BytesIO()
    try:
        torch.save(value, buffer)
        buffer.seek(0)
        unsafe = unsafe_names(buffer)
    except Exception as error:  # whatever the pickling of a user's object may raise
        raise TypeError(str(error)) from error
    if unsafe:
        raise TypeError(f"they hold {', '.join(unsafe)}")
    return buffer.getvalue()


def load_plain(data: bytes) -> Any:
    """Return what `dump_plain` was given."""
    return read_tensors(io.BytesIO(data))


def load_reducers(
    reducers: Sequence[MetricReducer], state: bytes, device: torch.device | str
) -> None:
    """Continue from what `dump_reducers` returned; tensors that were off the CPU go to `device`."""

    def place(storage: Any, location: str) -> Any:
        if location == "cpu":
            return storage
        restore: Any = torch.serialization.default_restore_location  # torch has no types for it
        return restore(storage, str(device))

    states = read_tensors(io.BytesIO(state), map_location=place)
    if len(states) != len(reducers):
        raise ValueError(
            f"The checkpoint has values of {len(states)} reducers, but {len(reducers)} are "
            "wrapped: wrap the same ones, in the same order, in the processor's __init__."
        )
    reducer: Any  # the two methods are optional
    for reducer, saved in zip(reducers, states, strict=True):
        if _keeps_state(reducer):
            reducer.load_state_dict(saved)
        else:
            vars(reducer).update(saved)


def slot_values(
    reducers: Sequence[MetricReducer], state: bytes, device: torch.device | str
) -> list[Any]:
    """Return what `per_slot_reduce` of a slot with this state gives, leaving the reducers alone."""
    copies = [copy.deepcopy(reducer) for reducer in reducers]
    load_reducers(copies, state, device)
    return [reducer.per_slot_reduce() for reducer in copies]


def _state_of(reducer: Any) -> dict[str, Any]:
    if isinstance(reducer, _SimpleReducer):
        return {"values": reducer.values}
    if _keeps_state(reducer):
        state: dict[str, Any] = reducer.state_dict()
        return state
    return dict(vars(reducer))


def _keeps_state(reducer: Any) -> bool:
    methods = ("state_dict", "load_state_dict")
    return all(callable(getattr(reducer, name, None)) for name in methods)
