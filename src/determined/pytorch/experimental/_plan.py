"""What `torch_batch_process` was asked for: checked once, then trusted."""

from __future__ import annotations

import dataclasses
import logging
import pathlib
from typing import Any

from determined.pytorch._identity.identity import digest_of, main_script
from determined.pytorch._schedule import is_whole_number

logger = logging.getLogger("determined.pytorch")


@dataclasses.dataclass(frozen=True)
class BatchPlan:
    """A dataset, and how to go through it."""

    dataset: Any
    batch_size: int
    max_batches: int | None
    checkpoint_interval: int
    loader_options: dict[str, Any]
    inference_mode: bool

    def iterations(self, num_workers: int, steps: int = 0, batches: int = 0) -> int:
        """Return how many batches the busiest worker gets in all.

        Each worker had `steps` before, and the first `batches` of the dataset are done.
        """
        left = -(-len(self.dataset) // self.batch_size) - batches
        full = steps + max(0, -(-left // num_workers))
        if self.max_batches is None:
            return full
        if 0 < self.max_batches <= full:
            return self.max_batches
        logger.warning(
            f"`max_batches` is ignored: it must be between 1 and the {full} batches of a worker, "
            f"got {self.max_batches}."
        )
        return full

    def identity(self, processor_class: type) -> str:
        """Return what makes a run the same one when it is started again, for `latest`."""
        script = main_script() or str(pathlib.Path("interactive").resolve())
        numbers = [str(len(self.dataset)), str(self.batch_size)]
        return "batch-process-" + digest_of([script, processor_class.__qualname__, *numbers])


def check_arguments(
    dataset: Any,
    batch_size: int | None,
    max_batches: int | None,
    checkpoint_interval: int,
    dataloader_kwargs: dict[str, Any] | None,
    inference_mode: bool,
) -> BatchPlan:
    """Return the plan, or say which argument cannot be honoured."""
    if not hasattr(dataset, "__len__"):
        raise TypeError(
            f"`dataset` must have a length, but {type(dataset).__name__} has no __len__."
        )
    if not is_whole_number(checkpoint_interval) or checkpoint_interval < 1:
        raise ValueError(
            f"`checkpoint_interval` must be an integer of at least 1, got {checkpoint_interval!r}."
        )
    options = dict(dataloader_kwargs or {})
    if options.pop("shuffle", False):
        _refuse("shuffle")
    for name in ("sampler", "batch_sampler"):
        if options.pop(name, None) is not None:
            _refuse(name)
    if "batch_size" in options:
        if batch_size is not None:
            raise ValueError(
                "Give `batch_size` as an argument or in `dataloader_kwargs`, not both."
            )
        batch_size = options.pop("batch_size")
    if batch_size is None:
        batch_size = 1
    if not is_whole_number(batch_size) or batch_size < 1:
        raise ValueError(f"`batch_size` must be an integer of at least 1, got {batch_size!r}.")
    return BatchPlan(
        dataset, batch_size, max_batches, checkpoint_interval, options, bool(inference_mode)
    )


def _refuse(name: str) -> None:
    raise ValueError(
        f"`dataloader_kwargs` must not have `{name}`: the dataset is processed in its own order, "
        "sharded over the ranks batch by batch."
    )
