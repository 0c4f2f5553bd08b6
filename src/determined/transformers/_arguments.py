"""What the arguments of a training say: its length, what to record of it, where its files go."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transformers import TrainingArguments

_UNITS = ("batches", "epochs")


@dataclasses.dataclass(frozen=True)
class Length:
    """How long to train: an amount in `batches` or `epochs`."""

    unit: str
    amount: float

    def __str__(self) -> str:
        return f"{self.amount:g} {self.unit}"


def length_of(args: TrainingArguments) -> Length:
    """Return how long the arguments say that training is."""
    if args.max_steps > -1:
        return Length("batches", args.max_steps)
    return Length("epochs", args.num_train_epochs)


def check_length(args: TrainingArguments, searcher: Mapping[str, Any]) -> None:
    """Raise unless the searcher's configuration agrees with the arguments on the length."""
    length = length_of(args)
    for name, configured in _configured_lengths(searcher):
        if configured != length:
            raise ValueError(
                f"The experiment configuration says {name}, and the training arguments say "
                f"{_argument(length)}, which is {length}: give both the same length, in the same "
                "unit."
            )


def _configured_lengths(searcher: Mapping[str, Any]) -> list[tuple[str, Length]]:
    found = []
    given = searcher.get("max_length")
    if given is not None:
        if not isinstance(given, Mapping) or len(given) != 1:
            raise ValueError(
                "`searcher.max_length` must be a map of one unit to a number, such as "
                f"`{{batches: 100}}` or `{{epochs: 3}}`, to be compared with the training "
                f"arguments; got {given!r}."
            )
        ((unit, amount),) = given.items()
        found.append((f"`searcher.max_length: {{{unit}: {amount}}}`", Length(unit, amount)))
    unit, amount = searcher.get("time_metric"), searcher.get("max_time")
    if unit in _UNITS and amount is not None:
        name = f"`searcher.time_metric: {unit}` and `searcher.max_time: {amount}`"
        found.append((name, Length(unit, amount)))
    return found


def _argument(length: Length) -> str:
    name = "max_steps" if length.unit == "batches" else "num_train_epochs"
    return f"`{name}={length.amount:g}`"


def hparams_of(args: TrainingArguments) -> dict[str, Any]:
    """Return the arguments that were given, for the record: those that are not the defaults."""
    found = {}
    for field in dataclasses.fields(args):
        value = getattr(args, field.name, None)
        if isinstance(value, enum.Enum):
            value = value.value
        is_plain = isinstance(value, (str, int, float))
        if field.init and is_plain and field.name not in _PLACES and value != field.default:
            found[field.name] = value
    return found


_PLACES = ("output_dir", "logging_dir", "run_name", "resume_from_checkpoint", "local_rank")


def folder_of(args: TrainingArguments) -> Path:
    """Return where the trainer writes its files."""
    return Path(args.output_dir or "trainer_output")  # the default of transformers 5


def private_folder(folder: Path, trial_id: int) -> Path:
    """Return the folder for the files of a trial.

    Inside the working directory, which each run has for itself, it is the one that was given. Other
    places are shared with the trials that run at the same time: there each has one of its own,
    beside the given one.
    """
    if folder.resolve().is_relative_to(Path.cwd().resolve()):
        return folder
    return folder.with_name(f"{folder.name}-trial-{trial_id}")


def get_ds_config_path_from_args(args: Sequence[str]) -> str | None:
    """Return the value of `--deepspeed` in a command line, None if it has none."""
    for argument, following in zip(args, [*args[1:], None], strict=True):
        name, has_value, value = argument.partition("=")
        if name == "--deepspeed":
            return value if has_value else following
    return None
