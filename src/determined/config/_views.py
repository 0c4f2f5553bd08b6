"""Other forms of a configuration: for search methods, for a trial's environment, for reading."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def typed_hyperparameters(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the hyperparameters of an effective configuration in the form search methods read.

    Every leaf is a mapping with `type` (plain values become `{"type": "const", "val": value}`);
    groups are mappings without it.
    """
    from pydantic import TypeAdapter

    from determined.config.model.hyperparameters import Hyperparameter, canonical

    adapter: TypeAdapter[dict[str, Any]] = TypeAdapter(dict[str, Hyperparameter])
    typed: dict[str, Any] = canonical(adapter.validate_python(config.get("hyperparameters") or {}))
    return typed


def environment_variables(config: Mapping[str, Any], device: str) -> dict[str, str]:
    """Return the variables of an effective configuration for a device: cpu, cuda or rocm.

    A variable without a value keeps its value from the creator's environment.
    """
    by_device = config["environment"]["environment_variables"]
    if device not in by_device:
        raise ValueError(f"`device` must be one of {', '.join(by_device)}, got {device!r}.")
    pairs = (variable.partition("=") for variable in by_device[device])
    return {name: value for name, equals, value in pairs if equals}


def schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 7) of configurations, for editors."""
    from determined.config.model import json_schema

    return json_schema.schema()


def to_yaml(config: Mapping[str, Any]) -> str:
    """Write a configuration as YAML that `load` reads back as the same values."""
    import yaml

    class Dumper(yaml.SafeDumper):
        def ignore_aliases(self, data: Any) -> bool:
            return True

    def represent_str(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
        style = '"' if _needs_quotes(text) else None
        return dumper.represent_scalar("tag:yaml.org,2002:str", text, style)

    def represent_float(dumper: yaml.SafeDumper, number: float) -> yaml.ScalarNode:
        text = {"inf": ".inf", "-inf": "-.inf", "nan": ".nan"}.get(repr(number), repr(number))
        return dumper.represent_scalar("tag:yaml.org,2002:float", text)

    Dumper.add_representer(str, represent_str)
    Dumper.add_representer(float, represent_float)
    text: str = yaml.dump(
        dict(config), Dumper=Dumper, sort_keys=False, allow_unicode=True, width=10_000
    )
    return text


def _needs_quotes(text: str) -> bool:
    """Whether YAML 1.2 would read unquoted text as something else, or not at all."""
    from determined.config.reading import yaml_reader

    if not text.replace("\n", "").isprintable():
        return True
    try:
        return not isinstance(yaml_reader.plain_scalar(text), str)
    except ValueError:
        return True
