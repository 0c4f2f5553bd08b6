"""SearcherContext: how long to train, as operations to complete. Deprecated, kept for old code."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from typing import Any

from determined.core._distributed import DistributedContext, DummyDistributedContext
from determined.core._enums import SearcherMode, Unit
from determined.core.backends.backend import Backend, LocalBackend

logger = logging.getLogger("determined.core")


class SearcherOperation:
    """Train until `length`, counted from the start of the trial."""

    def __init__(self, backend: Backend, length: int, is_chief: bool) -> None:
        self._backend = backend
        self._length = length
        self._is_chief = is_chief
        self._is_completed = False

    @property
    def length(self) -> int:
        """Where to train to, in the configured units, from the start of the trial."""
        return self._length

    def report_progress(self, length: float) -> None:
        """Report that training has reached `length`."""
        self._check_chief("op.report_progress")
        if self._is_completed and length != self._length:
            raise RuntimeError("op.report_progress was called after op.report_completed.")
        self._backend.report_progress(min(max(length / self._length, 0.0), 1.0))

    def report_completed(self, searcher_metric: float) -> None:
        """Report that `length` is reached, with the searcher's metric."""
        self._check_chief("op.report_completed")
        if self._is_completed:
            raise RuntimeError("op.report_completed was called twice.")
        self._is_completed = True
        logger.info("op.report_completed(searcher_metric=%s)", searcher_metric)

    def _check_chief(self, what: str) -> None:
        if not self._is_chief:
            raise RuntimeError(f"{what} may only be called by the chief.")


class SearcherContext:
    """Yields one operation, as long as the configuration's `searcher.max_length`."""

    def __init__(
        self,
        backend: Backend,
        distributed: DistributedContext,
        max_length: int,
        units: Unit | None = None,
    ) -> None:
        if max_length < 1:
            raise ValueError(f"searcher.max_length: expected at least 1, got {max_length!r}.")
        self._backend = backend
        self._distributed = distributed
        self._max_length = max_length
        self._units = units

    def operations(
        self,
        searcher_mode: SearcherMode = SearcherMode.WorkersAskChief,
        auto_ack: bool = True,
    ) -> Iterator[SearcherOperation]:
        """Iterate over what to train; the chief must complete each operation it gets."""
        warnings.warn(
            "SearcherContext.operations() is deprecated: train to a length of your own and "
            "report metrics.",
            FutureWarning,
            stacklevel=2,
        )
        mode = SearcherMode(searcher_mode)
        is_chief = self._distributed.rank == 0
        if mode == SearcherMode.ChiefOnly and not is_chief:
            raise RuntimeError(
                "searcher.operations may only be called by the chief with SearcherMode.ChiefOnly."
            )
        return self._operations(mode, is_chief)

    def acknowledge_out_of_ops(self) -> None:
        """Does nothing; kept for old callers."""

    def get_configured_units(self) -> Unit | None:
        """The unit of the configured length, None for a bare number."""
        return self._units

    def _operations(self, mode: SearcherMode, is_chief: bool) -> Iterator[SearcherOperation]:
        length = self._max_length
        if mode == SearcherMode.WorkersAskChief:
            length = self._distributed.broadcast(length)
        operation = SearcherOperation(self._backend, length, is_chief)
        yield operation
        is_completed = operation._is_completed
        if mode == SearcherMode.WorkersAskChief:
            is_completed = self._distributed.broadcast(is_completed)
        if not is_completed:
            raise RuntimeError("The chief must call op.report_completed before the next operation.")


class DummySearcherContext(SearcherContext):
    """A SearcherContext for a run on its own: one operation of length 1, in epochs."""

    def __init__(self, dist: DistributedContext | None = None, length: int = 1) -> None:
        distributed = dist or DummyDistributedContext()
        super().__init__(LocalBackend(), distributed, length, Unit.EPOCHS)


class DummySearcherOperation(SearcherOperation):
    """A SearcherOperation of a run on its own."""

    def __init__(self, length: int = 1, is_chief: bool = True) -> None:
        super().__init__(LocalBackend(), length, is_chief)


class SearcherContextMissing:
    """Replaces the searcher context if the configuration has no `searcher.max_length`."""

    def operations(
        self,
        searcher_mode: SearcherMode = SearcherMode.WorkersAskChief,
        auto_ack: bool = True,
    ) -> Iterator[SearcherOperation]:
        """Raise ValueError."""
        raise self._error()

    def acknowledge_out_of_ops(self) -> None:
        """Raise ValueError."""
        raise self._error()

    def get_configured_units(self) -> Unit | None:
        """Raise ValueError."""
        raise self._error()

    def _error(self) -> ValueError:
        return ValueError(
            "There is no searcher context without `searcher.max_length` in the experiment "
            "configuration: decide on the length of training in your own code."
        )


def parse_length(searcher: dict[str, Any]) -> tuple[int, Unit | None] | None:
    """Read `searcher.max_length` (a number or `{unit: number}`) and its unit; None if not set."""
    length, unit = searcher.get("max_length"), searcher.get("unit")
    if not length:
        return None
    if isinstance(length, dict):
        if len(length) != 1:
            raise ValueError(f"searcher.max_length: expected one unit, got {length!r}.")
        ((unit, length),) = length.items()
    try:
        return int(length), None if unit is None else Unit(str(unit).upper())
    except ValueError as error:
        raise ValueError(
            "searcher.max_length: expected an integer number of epochs, records or batches, got "
            f"{searcher.get('max_length')!r}."
        ) from error
