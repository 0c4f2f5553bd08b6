"""States of numpy's generators that came from a file: numpy itself believes all it is given."""

from __future__ import annotations

from typing import Any

_WORDS = 624  # of the Mersenne Twister
_BUFFER = 4  # of Philox


def checked(state: Any) -> Any:
    """Return a state, in either of numpy's forms; refuse one that makes numpy read other memory.

    Raises:
        ValueError: its position is outside of what the generator holds.
    """
    if isinstance(state, (tuple, list)):
        _check("position", state[2], _WORDS)
    else:
        inner = state["state"]
        if "pos" in inner:
            _check("pos", inner["pos"], _WORDS)
        if "buffer_pos" in state:
            _check("buffer_pos", state["buffer_pos"], _BUFFER)
    return state


def _check(name: str, value: Any, most: int) -> None:
    if not 0 <= int(value) <= most:
        raise ValueError(f"the random state of numpy has {name} {value}, not 0 to {most}")
