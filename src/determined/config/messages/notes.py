"""Notes for the author of a configuration: keys without effect and possible surprises."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any

from determined.config.messages.problems import Path, Problem
from determined.config.reading.old_forms import uses_harness

_NO_EFFECT: dict[Path, str] = {
    ("bind_mounts",): "there are no containers; trials see the machine's own paths",
    ("pbs",): "PBS is not supported",
    ("environment", "image"): "there are no containers; see environment.python and virtualenv",
    ("integrations", "pachyderm"): "Pachyderm is not supported",
    ("integrations", "webhooks"): "give a URL or a command: integrations.on_end, on_failure",
}
_HARNESS_ONLY: dict[Path, str] = {
    ("min_validation_period",): "fit(validation_period=...)",
    ("min_checkpoint_period",): "fit(checkpoint_period=...)",
    ("checkpoint_policy",): "fit(checkpoint_policy=...)",
    ("scheduling_unit",): "fit(reporting_period=...)",
    ("perform_initial_validation",): "fit(step_zero_validation=True)",
    ("profiling", "enabled"): "fit(profiling_enabled=True)",
    ("optimizations", "aggregation_frequency"): "pytorch.init(aggregation_frequency=...)",
    ("optimizations", "average_aggregated_gradients"): "the divided loss to backward",
    ("optimizations", "gradient_compression"): "the model through a DDP communication hook",
}
_LARGER_IS_BETTER = re.compile(
    "acc|accuracy|auc|auroc|auprc|m?ap|f1|fscore|precision|recall|sensitivity|specificity|m?iou|"
    "dice|bleu|rouge|meteor|r2|kappa|mcc|top[15]|ndcg|mrr|psnr|ssim|reward|return"
)
_ENORMOUS = 1e15  # beyond what anybody samples on purpose
_OTHER_LAUNCHERS = ("horovod", "deepspeed", "tensorflow")
_RANGES = ("int", "double", "log", "log_int", "categorical")
_LENGTHS = ("min_validation_period", "min_checkpoint_period")
_DEFAULTS: dict[Path, Any] = {
    ("checkpoint_policy",): "best",
    ("scheduling_unit",): 100,
    ("optimizations", "aggregation_frequency"): 1,
    ("optimizations", "average_aggregated_gradients"): True,
    ("optimizations", "mixed_precision"): "O0",
}
_NO_LONGER: dict[Path, str] = {
    ("records_per_epoch",): "an epoch is one pass over the data loader",
    ("optimizations", "mixed_precision"): "use torch.autocast and context.wrap_scaler",
}


def notes(config: dict[str, Any]) -> Iterator[Problem]:
    """Yield notes for the author of a configuration; `config` is as written in the file."""
    for path, reason in _NO_EFFECT.items():
        if _is_set(config, path):
            yield _note(f"no effect: {reason}", path)
    if not uses_harness(config.get("entrypoint")):
        for path, instead in _HARNESS_ONLY.items():
            if _is_set(config, path):
                yield _note(f"no effect with a script: pass {instead}", path)
    for path, reason in _NO_LONGER.items():
        if _is_set(config, path):
            yield _note(f"no effect: {reason}", path)
    yield from _launcher(config.get("entrypoint"))
    searcher = config.get("searcher")
    if isinstance(searcher, dict):
        yield from _direction(searcher)
    is_single = isinstance(searcher, dict) and searcher.get("name") == "single"
    for path, entry in _ranges(config.get("hyperparameters"), ("hyperparameters",)):
        if is_single:
            yield _note("`single` draws one value from this range", path)
        if entry["type"] == "log":
            yield from _exponents(entry, path)


def _direction(searcher: dict[str, Any]) -> Iterator[Problem]:
    """Point out a metric whose name says that more is better, where less is by default."""
    metric = searcher.get("metric")
    if not isinstance(metric, str) or searcher.get("smaller_is_better") is not None:
        return
    words = re.findall("[a-z]+[0-9]*", re.sub("([a-z])([A-Z])", r"\1_\2", metric).lower())
    if any(map(_LARGER_IS_BETTER.fullmatch, words)) and not {"loss", "error"} & set(words):
        text = f"{metric} is minimized, the default; to maximize it, add `smaller_is_better: false`"
        yield _note(text, ("searcher", "metric"))


def _exponents(entry: dict[str, Any], path: Path) -> Iterator[Problem]:
    """Point out bounds that look like values: those of other libraries are, these are exponents."""
    try:
        low, high, base = (
            float(entry["minval"]),
            float(entry["maxval"]),
            float(entry.get("base") or 10),
        )
        smallest, largest = base**low, base**high
    except (KeyError, TypeError, ValueError, OverflowError):
        return  # an error, which is told as one
    if not 0 < low < high < math.inf or base <= 1:
        return
    looks_like_fractions = high >= 10 * low and (low < 0.1 or high <= 1)
    if looks_like_fractions or largest > _ENORMOUS:
        exponents = [f"{math.log(x, base):.6g}" for x in (low, high)]
        yield _note(
            f"samples from {smallest:.4g} to {largest:.4g}, because minval and maxval are "
            f"exponents of {base:g}; to sample from {low:g} to {high:g}, write `minval: "
            f"{exponents[0]}, maxval: {exponents[1]}`",
            path,
        )


def _launcher(entrypoint: Any) -> Iterator[Problem]:
    """Warn about launchers that do not exist here."""
    words = entrypoint.split() if isinstance(entrypoint, str) else entrypoint
    if not isinstance(words, list):
        return
    for name in _OTHER_LAUNCHERS:
        if f"determined.launch.{name}" not in words:
            continue
        text = f"determined.launch.{name} is not part of this library, so trials will fail"
        if name == "horovod" and "--trial" in words:
            text = "old form; trials train with torch.distributed"
        instead = "write determined.launch.torch_distributed"
        yield Problem(f"{text}; {instead}", path=("entrypoint",), severity="note")


def _note(message: str, path: Path) -> Problem:
    return Problem(message, path=path, severity="note", points_at="key")


def _is_set(config: Any, path: Path) -> bool:
    """Whether a file sets something here: a value that is neither empty nor the default."""
    value = config
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    if isinstance(value, dict) and path[-1] in _LENGTHS and not any(value.values()):
        return False  # {batches: 0}
    if path in _DEFAULTS:
        return value is not None and bool(value != _DEFAULTS[path])
    return bool(value)


def _ranges(entry: Any, path: Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Yield the hyperparameters that are sampled, also those in groups."""
    if not isinstance(entry, dict):
        return
    if len(path) > 1 and "type" in entry:
        if entry["type"] in _RANGES:
            yield path, entry
        return
    for name, value in entry.items():
        yield from _ranges(value, (*path, name))
