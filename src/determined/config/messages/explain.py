"""Turn validation errors of the models into problems that say what to write instead."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from determined.config._mask import MASK, is_secret
from determined.config.messages.describe import expected, section_of
from determined.config.messages.problems import Path, Problem, listed, nearest, shown
from determined.config.model.experiment import Configuration
from determined.config.model.hyperparameters import RANGES, TYPES
from determined.config.model.searcher import REMOVED, SEARCHERS
from determined.config.model.storage import STORAGES
from determined.config.model.types import Section
from determined.config.reading.yaml_reader import in_older_yaml

_KINDS: dict[str, type[Section]] = {
    **SEARCHERS,
    **STORAGES,
    **dict(zip(TYPES, RANGES, strict=True)),
}
_BRANCHES: dict[str, type[Section] | None] = {
    **{f"({name})": model for name, model in _KINDS.items()},
    "(group)": None,
    "(plain)": None,
}

_UNKNOWN = "unknown key"
_DIRECTION = "write `smaller_is_better: false` to maximize the metric, `true` to minimize it"
_STEPS = "a step was 100 batches; write `max_length: {batches: n}`"
_OLD_NAMES: dict[Path, str] = {
    ("batches_per_step",): "it is now called scheduling_unit",
    ("searcher", "max_steps"): _STEPS,
    ("searcher", "target_trial_steps"): _STEPS,
    ("searcher", "step_budget"): "write `max_trials: n`",
    ("searcher", "direction"): _DIRECTION,
    ("searcher", "maximize"): _DIRECTION,
    ("searcher", "minimize"): _DIRECTION,
    # of an earlier population-based training
    ("searcher", "num_rounds"): "write `max_time`, the rounds times `interval`",
    ("searcher", "length_per_round"): "write `interval`, a number in units of `time_metric`",
    ("searcher", "replace_function"): "write `quantile`",
    ("searcher", "explore_function"): "write `perturb` and `resample`",
}
_DOUBLE = "write `type: double` with minval and maxval"
_INT = "write `type: int` with minval and maxval"
_LOG = "write `type: log`; its minval and maxval are exponents of 10, such as -4 and -1"
_LOG_INT = "write `type: log_int` with minval and maxval"
_CATEGORICAL = "write `type: categorical` with vals, a list"
_TYPES_ELSEWHERE = {
    **dict.fromkeys(("float", "uniform", "number", "real", "quniform"), _DOUBLE),
    **dict.fromkeys(("integer", "randint", "int_uniform", "q_uniform_int"), _INT),
    **dict.fromkeys(("loguniform", "log_uniform", "log_uniform_values", "logfloat"), _LOG),
    **dict.fromkeys(("lograndint", "logint", "int_log", "log_uniform_int"), _LOG_INT),
    **dict.fromkeys(("choice", "choices", "values", "bool", "boolean"), _CATEGORICAL),
}
_OLD_STORAGES = {"hdfs": "it was removed; mount it and use shared_fs"}


def explain_all(errors: Iterable[ErrorDetails]) -> list[Problem]:
    """Turn validation errors into problems, one for each mistake."""
    found = [problem for error in errors if (problem := explain(error)) is not None]
    # A misspelt key is also missing under its right name: once is enough.
    meant = {(p.path[:-1], p.hint) for p in found if p.message == _UNKNOWN}
    return [
        p
        for p in found
        if not p.message.startswith("missing")
        or (p.path[:-1], f"did you mean {p.path[-1]}?") not in meant
    ]


def explain(error: ErrorDetails) -> Problem | None:
    """Return the problem behind a validation error; None if another check reports it better."""
    path, model, field, is_item = _walk(error["loc"])
    kind, value = error["type"], error["input"]
    if kind == "extra_forbidden":
        return _unknown_key(path, model)
    if kind.startswith("union_tag"):
        return _unknown_kind(path, value)
    if kind == "missing":
        words = f"missing; expected {expected(field)}" if field else "missing"
        return Problem(words, path=path, points_at="key")
    if kind == "expected":
        wanted = str(error["ctx"]["expected"])
        if (item := error["ctx"].get("item")) is not None:
            path, value = (*path, item), value[item]
    else:
        wanted = expected(field, item=is_item) if field else str(error["msg"])
    if is_secret(path):
        return Problem(f"expected {wanted}, got {MASK}", path=path)
    got = shown(value, inside=kind == "expected")
    return Problem(f"expected {wanted}, got {got}", path=path, hint=_hint(kind, value, error))


def _walk(loc: tuple[int | str, ...]) -> tuple[Path, type[Section] | None, FieldInfo | None, bool]:
    """Follow an error's location through the models; branches of unions are not keys."""
    path: list[int | str] = []
    model: type[Section] | None = Configuration
    field: FieldInfo | None = None
    is_item = False
    for position, step in enumerate(loc):
        if _is_branch(loc, position):
            model, field = _BRANCHES[str(step)], None
            continue
        path.append(step)
        is_item = isinstance(step, int)
        if is_item or model is None:
            continue
        field = _field(model, str(step))
        last = position == len(loc) - 1
        model = model if last or field is None else section_of(field.annotation)
    return tuple(path), model, field, is_item


def _is_branch(loc: tuple[int | str, ...], position: int) -> bool:
    """Whether a step is the branch of a union; keys may look the same, so its position decides."""
    if loc[position] not in _BRANCHES:
        return False
    if loc[0] == "hyperparameters":  # a name, its branch, within a group a name, its branch, ...
        return position % 2 == 0
    return position == 1 and loc[0] in ("searcher", "checkpoint_storage")


def _field(model: type[Section], key: str) -> FieldInfo | None:
    found = (f for name, f in model.model_fields.items() if (f.alias or name) == key)
    return next(found, None)


def _unknown_key(path: Path, model: type[Section] | None) -> Problem:
    key = str(path[-1])
    own = model.known_keys() if model else frozenset()
    if (owners := _relatives_with(key, model)) is not None:
        return Problem(f"does not belong here; {owners} takes it", path=path, points_at="key")
    return Problem(_UNKNOWN, path=path, hint=_meant(path, key, own), points_at="key")


def _meant(path: Path, key: str, known: frozenset[str]) -> str | None:
    """Suggest what to write instead of an unknown key."""
    if path in _OLD_NAMES:
        return _OLD_NAMES[path]
    if (near := nearest(key, sorted(known))) is not None:
        return f"did you mean {near}?"
    if path[:-1] == ("environment", "environment_variables"):
        return f'write a list: ["{key}=..."]'
    return _elsewhere(key, path)


def _relatives_with(key: str, model: type[Section] | None) -> str | None:
    """Name the searchers (storages, ranges) other than this one that take a key."""
    for family in (SEARCHERS, STORAGES, dict(zip(TYPES, RANGES, strict=True))):
        if model in family.values():
            owners = [name for name, m in family.items() if key in m.known_keys()]
            return listed(owners) if owners else None
    return None


def _elsewhere(key: str, path: Path) -> str | None:
    """Name the section that a misplaced key belongs to."""
    places = []
    if len(path) > 1 and key in Configuration.known_keys():
        places.append("the top level")
    for name, field in Configuration.model_fields.items():
        section = section_of(field.annotation)
        if section is not None and key in section.known_keys() and name != path[0]:
            places.append(f"`{name}`")
    if path[0] != "searcher" and any(key in m.known_keys() for m in SEARCHERS.values()):
        places.append("`searcher`")
    if path[0] != "checkpoint_storage" and any(key in m.known_keys() for m in STORAGES.values()):
        places.append("`checkpoint_storage`")
    return f"it belongs to {listed(places[:3])}" if places else None


def _unknown_kind(path: Path, value: Any) -> Problem | None:
    """A searcher, storage or hyperparameter of an unknown kind."""
    if path[0] == "searcher":
        key, known = "name", tuple(SEARCHERS)
    else:
        key, known = "type", TYPES if path[0] == "hyperparameters" else tuple(STORAGES)
    here = (*path, key)
    if not isinstance(value, dict):
        return Problem(f"expected a mapping, got {shown(value)}", path=path)
    given = value.get(key)
    if given is None:
        words = f"missing; expected {listed(known)}"
        return Problem(words, path=here, points_at="key")
    if key == "name" and isinstance(given, str) and given in REMOVED:
        return None
    hint = f"did you mean {near}?" if (near := nearest(str(given), known)) else None
    if path[0] == "checkpoint_storage":
        hint = _OLD_STORAGES.get(str(given), hint)
    if path[0] == "hyperparameters":
        hint = _TYPES_ELSEWHERE.get(str(given), hint)
    if path[0] == "hyperparameters" and hint is None:
        hint = "a group cannot have a hyperparameter called `type`"
    return Problem(f"expected {listed(known)}, got {shown(given)}", path=here, hint=hint)


def _hint(kind: str, value: Any, error: ErrorDetails) -> str | None:
    if kind == "bool_type" and isinstance(value, str):
        meant = in_older_yaml(value)
        if meant is not None:
            return f"in YAML 1.2 this is text; write {shown(meant)}"
    if kind == "bool_type" and value in ("true", "false"):
        return "it is text; remove the quotes"
    is_text_wanted = kind == "string_type" or (kind == "expected" and error["ctx"].get("item"))
    if is_text_wanted and isinstance(value, (int, float)) and not isinstance(value, bool):
        return f'quote it: "{value}"'
    if kind == "string_type" and isinstance(value, dict) and len(value) == 1:
        (name, content), *_ = value.items()
        if "environment_variables" in error["loc"] and not isinstance(content, (dict, list)):
            return f'write "{name}=..."'
    if kind == "literal_error" and value in ("max", "min") and error["loc"][-1] == "mode":
        return _DIRECTION
    if kind == "literal_error" and isinstance(value, str):
        known = str(error["ctx"]["expected"]).replace("'", "").replace(" or ", ", ").split(", ")
        near = nearest(value, known)
        return f"did you mean {near}?" if near else None
    if kind in ("int_type", "float_type") and isinstance(value, str):
        return "it is text; write digits without quotes" if _looks_numeric(value) else None
    return None


def _looks_numeric(text: str) -> bool:
    try:
        float(text.replace("_", ""))
    except ValueError:
        return False
    return True
