"""Convert older forms of configuration to the current ones, with notes that show how."""

from __future__ import annotations

import dataclasses
from typing import Any, TypeGuard

from determined._legacy.entrypoint import is_trial_class
from determined.config.messages.problems import Path, Problem, shown

_HALVING = ("async_halving", "adaptive_asha")
_DEVICES = ("cpu", "cuda", "rocm")
_UNITS = ("batches", "records", "epochs")


@dataclasses.dataclass(frozen=True)
class Modern:
    """A configuration in its current form, the origins of its new keys, and notes about it."""

    config: dict[str, Any]
    moved: dict[Path, Path]
    notes: list[Problem]


def uses_harness(entrypoint: Any) -> bool:
    """Whether trials are trained by the harness, which reads its periods from the configuration."""
    if is_trial_class(entrypoint):
        return True
    words = entrypoint.split() if isinstance(entrypoint, str) else entrypoint
    if not isinstance(words, (list, tuple)):
        return False
    return "--trial" in words or "determined.exec.harness" in words


def modern(config: dict[str, Any]) -> Modern:
    """Convert every old form."""
    new = Modern(dict(config), {}, [])
    _entrypoint(new)
    _searcher_length(new)
    _slots(new)
    _environment_variables(new)
    _log_policies(new)
    return new


def _note(message: str, path: Path) -> Problem:
    return Problem(message, path=path, severity="note")


def _entrypoint(new: Modern) -> None:
    if is_trial_class(new.config.get("entrypoint")):
        new.config["entrypoint"] = new.config["entrypoint"].strip()
        new.notes.append(
            _note(
                "old form; write a script that calls pytorch.init and Trainer.fit, and start it: "
                "`python3 -m determined.launch.torch_distributed python3 train.py`",
                ("entrypoint",),
            )
        )


def _searcher_length(new: Modern) -> None:
    """In old files, `max_length` of halving searchers stood for `max_time` and `time_metric`."""
    searcher = new.config.get("searcher")
    if not isinstance(searcher, dict) or searcher.get("max_length") is None:
        if isinstance(searcher, dict):
            _harness_length(new, searcher)
        return
    here: Path = ("searcher", "max_length")
    length = _unit_and_count(searcher)
    harness = uses_harness(new.config.get("entrypoint"))
    if searcher.get("name") not in _HALVING:
        if not harness and length is not None:
            words = f"fit(max_length={_unit_class(*length)})"
            new.notes.append(_note(f"old form; pass the length to the trainer: {words}", here))
        return
    if length is None or None not in (searcher.get("max_time"), searcher.get("time_metric")):
        return
    unit, count = length
    new.config["searcher"] = {
        **searcher,
        "max_time": searcher.get("max_time") or count,
        "time_metric": searcher.get("time_metric") or unit,
    }
    new.moved[("searcher", "max_time")] = new.moved[("searcher", "time_metric")] = here
    text = f"old form; write `max_time: {count}` and `time_metric: {unit}`"
    if unit == "records":
        text += " (a trial's records are its batches times its `global_batch_size`)"
    new.notes.append(_note(text, here))


def _harness_length(new: Modern, searcher: dict[str, Any]) -> None:
    """The harness trains to `max_length`: the longest training of a halving searcher."""
    wanted = searcher.get("name") in _HALVING and uses_harness(new.config.get("entrypoint"))
    unit, count = searcher.get("time_metric"), searcher.get("max_time")
    if wanted and unit in _UNITS and _is_count(count):
        new.config["searcher"] = {**searcher, "max_length": {unit: int(count)}}
        new.moved[("searcher", "max_length")] = ("searcher", "max_time")


def _is_count(value: Any) -> TypeGuard[float]:
    whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
    return whole and not isinstance(value, bool) and value >= 1


def _unit_and_count(searcher: dict[str, Any]) -> tuple[str, int] | None:
    """Return the unit and count of `max_length`, if any; mistakes in it are reported later."""
    length = searcher["max_length"]
    if isinstance(length, dict):
        given = [(unit, count) for unit, count in length.items() if count is not None]
        if len(given) != 1 or given[0][0] not in _UNITS:
            return None
        unit, length = given[0]
    else:
        unit = searcher.get("unit") or searcher.get("time_metric") or "batches"
    return (str(unit), int(length)) if _is_count(length) else None


def _unit_class(unit: str, count: int) -> str:
    name = {"batches": "Batch", "epochs": "Epoch"}.get(unit)
    return f"{name}({count})" if name else f"Batch(n), with {count} records in n batches"


def _slots(new: Modern) -> None:
    """`slots` is the key of commands and notebooks, which people write for experiments too."""
    resources = new.config.get("resources")
    if not isinstance(resources, dict) or "slots" not in resources:
        return
    others = {key: value for key, value in resources.items() if key != "slots"}
    here: Path = ("resources", "slots")
    if others.get("slots_per_trial") is None:
        others["slots_per_trial"] = resources["slots"]
        new.moved[("resources", "slots_per_trial")] = here
        new.notes.append(_note("means `slots_per_trial` here; write that", here))
    else:
        new.notes.append(_note("no effect: `slots_per_trial` is set", here))
    new.config["resources"] = others


def _environment_variables(new: Modern) -> None:
    """A plain list applies to every device; `gpu` is an older name of `cuda`."""
    environment = new.config.get("environment")
    if not isinstance(environment, dict):
        return
    variables = environment.get("environment_variables")
    here: Path = ("environment", "environment_variables")
    if isinstance(variables, list):
        by_device: dict[str, Any] = dict.fromkeys(_DEVICES, variables)
        new.moved.update({(*here, device): here for device in _DEVICES})
    elif isinstance(variables, dict) and "gpu" in variables:
        by_device = {key: value for key, value in variables.items() if key != "gpu"}
        if by_device.get("cuda") is None:
            by_device["cuda"] = variables["gpu"]
            new.moved.update({(*here, "cuda"): (*here, "gpu")})
        new.notes.append(_note("old name; write `cuda`", (*here, "gpu")))
    else:
        return
    new.config["environment"] = {**environment, "environment_variables": by_device}


def _log_policies(new: Modern) -> None:
    policies = new.config.get("log_policies")
    if isinstance(policies, list):
        told = [_log_policy(new, policy, index) for index, policy in enumerate(policies)]
        new.config["log_policies"] = _named_apart(told, policies)


def _named_apart(policies: list[Any], written: list[Any]) -> list[Any]:
    """Add numbers to the names of old policies that share a pattern."""
    seen: dict[str, int] = {}
    apart = []
    for policy, old in zip(policies, written, strict=True):
        if isinstance(policy, dict) and isinstance(old, dict) and old.get("name") is None:
            name = str(policy.get("name"))
            seen[name] = seen.get(name, 0) + 1
            policy = policy if seen[name] == 1 else {**policy, "name": f"{name} ({seen[name]})"}
        apart.append(policy)
    return apart


def _log_policy(new: Modern, policy: Any, index: int) -> Any:
    """Old policies have no name, and an action of the form `{type: cancel_retries}`."""
    here: Path = ("log_policies", index)
    if not isinstance(policy, dict):
        return policy
    action = policy.get("action")
    if isinstance(action, dict) and list(action) == ["type"]:
        policy = {**policy, "action": action["type"]}
        new.moved.update({(*here, "action"): (*here, "action", "type")})
        text = f"old form; write `action: {action['type']}`"
        new.notes.append(_note(text, (*here, "action")))
    pattern = policy.get("pattern")
    if policy.get("name") is None and isinstance(pattern, str) and pattern:
        policy = {**policy, "name": pattern}
        new.moved.update({(*here, "name"): (*here, "pattern")})
        text = f"old form; give the policy a name, such as `name: {shown(pattern)}`"
        new.notes.append(_note(text, here))
    return policy
