"""Which run this is: what `latest` continues, and the name by which people know it.

A run is its script, the arguments of the script, the seed that was given, the hyperparameters and
the trial class. Of the arguments, only names that cannot mean anything but how long to train, what
to show or where ranks meet are left out, written as `--name value`, `--name=value` or `name=value`.
So `--epochs 30` continues what `--epochs 10` began, and `--length 64` is another run than
`--length 128`.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
import pathlib
import re
import sys
from collections.abc import Mapping, Sequence, Set
from typing import Any

from determined.util import json_encode

LENGTHS = (
    *("epochs", "max_epochs", "num_epochs", "total_epochs"),
    *("train_epochs", "max_train_epochs", "num_train_epochs"),
    *("train_steps", "max_train_steps", "num_train_steps", "total_train_steps"),
    *("train_batches", "max_train_batches", "num_train_batches"),
    *("train_iters", "max_train_iters", "num_train_iters"),
    *("train_iterations", "max_train_iterations", "num_train_iterations"),
)
DISPLAYS = (
    *("log_every", "log_interval", "log_level", "print_every", "print_interval", "print_freq"),
    *("reporting_period", "save_every", "save_interval", "checkpoint_period"),
)
LAUNCH = ("local_rank", "node_rank", "master_addr", "master_port")
WITH_VALUE = frozenset((*LENGTHS, *DISPLAYS, *LAUNCH))
"""Options that do not count, nor does the argument after them."""
WITHOUT_VALUE = frozenset(
    ("continue", "resume", "progress", "no_progress", "quiet", "verbose", "no_verbose")
)
"""Options that do not count and stand alone; `--resume=...` does not count either."""

# What release 0.2 left out: names that can also mean a length of sequences or a rank of matrices.
_UNITS = ("epochs", "batches", "steps", "iters", "iterations")
_BEFORE_UNITS = ("", "max_", "n_", "num_", "total_", "train_", "max_train_", "num_train_")
_FORMERLY_WITH_VALUE = frozenset(
    (
        *(before + unit for before in _BEFORE_UNITS for unit in _UNITS),
        *(f"{a}_{p}" for a in ("eval", "log", "print", "save") for p in ("every", "interval")),
        *("checkpoint_period", "reporting_period", "validation_period", "print_freq"),
        *("length", "max_length", "max_time", "log_level", "num_workers", "workers"),
        *("rank", "local_rank", "node_rank", "world_size", "master_addr", "master_port"),
    )
)
_FORMERLY_WITHOUT_VALUE = frozenset(
    ("continue", "resume", "profile", "progress", "no_progress", "quiet", "q", "verbose", "v")
)

_NAMING = 2  # of these rules, in the facts of a checkpoint

_LONGEST_NAME = 60


@dataclasses.dataclass(frozen=True)
class Identity:
    """What makes two starts of a script the same run, besides the trial class."""

    script: str
    arguments: tuple[str, ...] = ()
    seed: int | None = None
    hparams: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def name(self) -> str:
        """A readable name: the script, what was given to it, and a digest of everything."""
        stem = pathlib.PurePath(self.script).stem
        given = self.arguments or [
            f"{key}-{value}"
            for key, value in self.hparams.items()
            if isinstance(value, (str, int, float))
        ]
        seed = [] if self.seed is None else [f"seed-{self.seed}"]
        words = (safe_in_names(word) for word in [stem, *given, *seed])
        readable = "-".join(word for word in words if word)[:_LONGEST_NAME].rstrip("-.")
        return f"{readable}-{self._digest()}"

    def run_id(self, trial_class: type) -> str:
        """The name of the run of one trial class."""
        return f"{self.name}-{safe_in_names(trial_class.__qualname__)}"

    def facts(self, trial_class: type) -> dict[str, Any]:
        """What a checkpoint keeps of it, to tell runs apart later."""
        return {
            "script": _readable(self.script),
            "trial": trial_class.__qualname__,
            "arguments": [_readable(argument) for argument in self.arguments],
            "seed": self.seed,
            "hparams": _as_json(self.hparams),
            "naming": _NAMING,
        }

    def _digest(self) -> str:
        parts = [self.script, *self.arguments, str(self.seed), _as_json(self.hparams)]
        text = "\0".join(parts).encode(errors="surrogateescape")
        return hashlib.sha256(text).hexdigest()[:8]


def identity_of_program(seed: int | None, hparams: Mapping[str, Any] | None) -> Identity:
    """Return the identity of the program that runs now."""
    main = main_script()
    # A notebook has no file, and its arguments are those of the kernel: others at each start.
    has_arguments = main is not None or sys.argv[:1] == ["-c"]
    return Identity(
        script=main or "interactive",
        arguments=tuple(distinguishing_arguments(sys.argv[1:])) if has_arguments else (),
        seed=seed,
        hparams=dict(hparams or {}),
    )


def identity_in_0_2(run: Identity) -> Identity:
    """Return the identity that release 0.2 gave this program."""
    kept = {k: v for k, v in run.hparams.items() if _option(k) not in _FORMERLY_WITH_VALUE}
    has_arguments = main_script() is not None or sys.argv[:1] == ["-c"]
    arguments = distinguishing_arguments(
        sys.argv[1:], _FORMERLY_WITH_VALUE, _FORMERLY_WITHOUT_VALUE
    )
    return dataclasses.replace(
        run, arguments=tuple(arguments) if has_arguments else (), hparams=kept
    )


def main_script() -> str | None:
    """Return the path of the script that runs, None in a notebook and the like."""
    main = getattr(sys.modules.get("__main__"), "__file__", None)
    return str(pathlib.Path(main).resolve()) if main else None


def digest_of(parts: Sequence[str]) -> str:
    """Return a short name for texts, the same in every process."""
    text = "\n".join(parts).encode(errors="surrogateescape")
    return hashlib.sha256(text).hexdigest()[:16]


def distinguishing_arguments(
    arguments: Sequence[str],
    with_value: Set[str] = WITH_VALUE,
    without_value: Set[str] = WITHOUT_VALUE,
) -> list[str]:
    """Return the arguments that tell runs apart, in their order."""
    kept: list[str] = []
    remaining = iter(arguments)
    for argument in remaining:
        name, has_value, _ = argument.partition("=")
        is_option = argument.startswith("-") or bool(has_value)
        if is_option and _option(name) in with_value:
            if not has_value:
                next(remaining, None)
        elif not is_option or _option(name) not in without_value:
            kept.append(argument)
    return kept


def run_id_before_0_2(
    identity: Identity, hparams: Mapping[str, Any] | None, trial_class: type
) -> str:
    """Return what releases before 0.2 called this run: they ignored the seed and the arguments."""
    return digest_of([identity.script, trial_class.__qualname__, repr(hparams)])


def is_named_by_current_rules(metadata: Mapping[str, Any]) -> bool:
    """Whether the checkpoint with this metadata was named by the rules above."""
    facts = metadata.get("run")
    return isinstance(facts, Mapping) and facts.get("naming") == _NAMING


def same_hparams(hparams: Mapping[str, Any] | None, saved: Any) -> bool:
    """Whether a checkpoint was saved with these hyperparameters, all of them."""
    return _as_json(dict(hparams or {})) == _as_json(dict(saved or {}))


def differences(run: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """Say in words what `other` has that `run` has not; both are `Identity.facts`."""
    labels = {"trial": "trial class", "arguments": "arguments", "seed": "seed"}
    found = []
    for key, label in labels.items():
        if run.get(key) != other.get(key):
            value = other.get(key)
            text = " ".join(map(str, value)) if isinstance(value, list) else str(value)
            found.append(f"{label} {text or '(none)'}")
    if run.get("hparams") != other.get("hparams"):
        found.append(f"hyperparameters {other.get('hparams')}")
    return found


def safe_in_names(text: str) -> str:
    """Keep what is safe in the name of a file."""
    return re.sub(r"[^A-Za-z0-9._]+", "-", text.replace("<locals>.", "")).strip("-.")


def file_name(run_id: str) -> str:
    """Return a name for files of a run; equal for equal runs only."""
    if run_id and safe_in_names(run_id) == run_id and len(run_id) <= 150:
        return run_id
    digest = hashlib.sha256(run_id.encode(errors="surrogateescape")).hexdigest()[:8]
    return f"{safe_in_names(run_id)[:100]}-{digest}".lstrip("-.")


def _option(name: object) -> str:
    return str(name).lstrip("-").replace("-", "_").lower()


def _as_json(value: Mapping[str, Any]) -> str:
    try:
        return json_encode(value, sort_keys=True)
    except (TypeError, ValueError):
        return _without_addresses(repr(value))


def _without_addresses(text: str) -> str:
    return re.sub(r" at 0x[0-9a-f]+", "", text)


def _readable(text: str) -> str:
    return os.fsencode(text).decode("utf-8", errors="replace")
