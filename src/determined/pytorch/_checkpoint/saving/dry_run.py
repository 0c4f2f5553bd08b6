"""Try once whether what a run saves can be loaded again, long before that matters."""

from __future__ import annotations

import io
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from determined.errors import CheckpointError
from determined.pytorch._checkpoint.files.decoding import NotTrustedError, from_plain
from determined.pytorch._checkpoint.files.encoding import TAG, living_in, to_plain
from determined.pytorch._checkpoint.files.reading import read_tensors, unsafe_names
from determined.pytorch._checkpoint.files.trust import Trust, how_to_trust
from determined.pytorch._checkpoint.state.copying import Path, copy_state

logger = logging.getLogger("determined.pytorch")


class DryRun:
    """Writes and reads states in memory, tensors without their content; each problem is said once.

    Raises:
        CheckpointError: a state cannot even be written.
    """

    def __init__(self, trusts: Sequence[Callable[[], Trust]]) -> None:
        """Take what will be trusted, from the least to the most."""
        self._trusts = trusts
        self._warned: set[str] = set()

    def try_states(self, states: Mapping[str, Any]) -> None:
        """Try states by what they are of; warn of those that could not be loaded."""
        for what, state in states.items():
            if (problem := self._problem(what, state)) and problem not in self._warned:
                self._warned.add(problem)
                logger.warning(problem)

    def _problem(self, what: str, state: Any) -> str | None:
        file = io.BytesIO()
        try:
            torch.save(copy_state(to_plain(state), _Shrinking()), file)
        except Exception as e:
            raise CheckpointError(
                f"The state of {what} cannot be saved: {type(e).__name__}: {e}. Return only "
                "tensors, plain values and objects that can be pickled from its state_dict."
            ) from e
        file.seek(0)
        try:
            if names := unsafe_names(file):
                return (
                    f"The state of {what} holds {', '.join(names)}, so checkpoints of this run can "
                    "only be loaded with pytorch.init(allow_pickle=True). Use tensors, plain "
                    "values and objects of your own classes instead."
                )
            self._load(file, state)
        except NotTrustedError as e:
            return (
                f"The state of {what} holds objects of {', '.join(e.classes)}. To continue from "
                f"checkpoints of this run, write {how_to_trust(e.classes)}: otherwise they are not "
                "loaded, since making objects from a file can run code."
            )
        except Exception as e:
            return (
                f"The state of {what} can be saved, but not loaded: {type(e).__name__}: {e}. "
                "Runs cannot be continued from checkpoints that have it."
            )
        return None

    def _load(self, file: io.BytesIO, state: Any) -> None:
        for trust in self._trusts:
            file.seek(0)
            try:
                from_plain(read_tensors(file), trust(), lambda: living_in(state))
                return
            except NotTrustedError:
                if trust is self._trusts[-1]:
                    raise


class _Shrinking:
    """Takes the content out of tensors; one tensor of each subclass stays as it is."""

    def __init__(self) -> None:
        self._seen: set[str] = set()

    def __call__(self, value: Any, path: Path) -> Any:
        if isinstance(value, torch.Tensor):
            return torch.empty(0, dtype=value.dtype)
        if value.get(TAG) != "tensor":
            return value
        if value["class"] in self._seen:
            return {}
        self._seen.add(value["class"])
        return dict(value)
