"""Defects that the library once had. Put back, one at a time, each must be found.

Planting changes classes of the library in this process, for good: it is for processes of one test.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from determined.pytorch._checkpoint.checkpoints import Checkpoints
from determined.pytorch._checkpoint.saving.save_on_error import SaveOnError
from determined.pytorch._checkpoint.state import copying, optimizers, snapshot
from determined.pytorch._checkpoint.state.modules import AsBuilt
from determined.pytorch._data.training.map_style import MapStyleData
from determined.pytorch._data.validation_parts import ValidationParts
from determined.pytorch._loop import TrainLoop
from determined.pytorch._metrics.segment import Segment


@dataclasses.dataclass(frozen=True)
class Defect:
    """How to put it back, and the choices of a recipe that it takes to see it."""

    plant: Callable[[], None]
    given: Mapping[str, Any]


def _change(owner: Any, name: str, value: Any) -> None:
    assert hasattr(owner, name), f"{owner.__name__} has no {name} any more"
    setattr(owner, name, value)


def _add_counters_to_their_copies() -> None:
    copy_value = copying._Copy.of

    def adding(self: Any, value: Any, path: Any) -> Any:
        if not isinstance(value, Counter):
            return copy_value(self, value, path)
        new = copy.copy(value)
        new.update(value)
        return new

    _change(copying._Copy, "of", adding)


def _cast_optimizer_states() -> None:
    _change(optimizers, "_put_right", lambda *_, **__: None)


def _judge_every_optimizer_by_its_groups() -> None:
    _change(optimizers, "has_own_format", lambda optimizer: False)


def _clone_tensors_of_every_kind() -> None:
    for module in (copying, snapshot):
        _change(module, "is_made_of_tensors", lambda tensor: False)


def _forget_flags_and_buffers() -> None:
    _change(AsBuilt, "changes", lambda self, models: [{} for _ in models])


def _save_what_validations_changed() -> None:
    @contextlib.contextmanager
    def without_a_copy(self: Checkpoints) -> Iterator[None]:
        yield

    _change(Checkpoints, "unchanged_until_validated", without_a_copy)


def _call_every_state_exact() -> None:
    _change(SaveOnError, "during", lambda self, what: contextlib.nullcontext())


def _train_mode_at_every_report() -> None:
    train_segment = TrainLoop._train_segment

    def in_train_mode(self: TrainLoop) -> None:
        for model in self._context.models:
            model.train()
        train_segment(self)

    _change(TrainLoop, "_train_segment", in_train_mode)


def _forget_open_segments() -> None:
    _change(Segment, "state_dict", lambda self: None)


def _forget_datasets() -> None:
    _change(MapStyleData, "_remember", lambda self, saved: None)


def _remember_validations() -> None:
    _change(ValidationParts, "__enter__", lambda self: self)
    _change(ValidationParts, "__exit__", lambda self, *_: None)


_BY_HAND = ("averaged weights by hand",)
_IN_VALIDATIONS = {"validate_every": 2, "in_background": True}

DEFECTS = {
    "counters are doubled by a copy": Defect(
        _add_counters_to_their_copies, {"scheduler": "MultiStepLR", "steps_every": "batch"}
    ),
    "float32 state of bfloat16 weights is cast": Defect(
        _cast_optimizer_states, {"optimizer": "NAdam", "dtype": "bfloat16", "precision": None}
    ),
    "an optimizer's own format is not understood": Defect(
        _judge_every_optimizer_by_its_groups,
        {"optimizer": "an optimizer with its own state_dict"},
    ),
    "tensors made of tensors cannot be copied": Defect(
        _clone_tensors_of_every_kind,
        {"optimizer": "an optimizer with tensors of its own", "in_background": True},
    ),
    "buffers that are not persistent are lost": Defect(
        _forget_flags_and_buffers, {"extras": ("a buffer that is not persistent",)}
    ),
    "flags that say what is trained are lost": Defect(
        _forget_flags_and_buffers, {"extras": ("a layer that is frozen later",), "batches": 10}
    ),
    "a stop in a validation saves swapped weights": Defect(
        _save_what_validations_changed, {"extras": _BY_HAND, **_IN_VALIDATIONS}
    ),
    "what hooks of a broken validation count is counted twice": Defect(
        _save_what_validations_changed, {"extras": ("a count of hooks",), **_IN_VALIDATIONS}
    ),
    "a state after an error is called exact that is not": Defect(
        _call_every_state_exact, {"extras": ("a count of hooks",), "save_every": None}
    ),
    "state of a dataset is lost": Defect(
        _forget_datasets, {"data": "a dataset with state", "workers": 0}
    ),
    "evaluation mode ends with a report": Defect(
        _train_mode_at_every_report, {"extras": ("layers in evaluation mode",)}
    ),
    "a row after a stop averages the rest of its batches": Defect(
        _forget_open_segments, {"report_every": 100, "validate_every": None, "save_every": None}
    ),
    "a validation depends on the one before": Defect(
        _remember_validations,
        {"validation_data": "with a generator of its own", "validate_every": 2},
    ),
}
