"""Values given on the command line: `--config searcher.max_trials=20`."""

from __future__ import annotations

from typing import Any

from determined.config.messages.problems import Path, Problem


def parse(text: str) -> tuple[Path, Any] | Problem:
    """Read `a.b.c=value`.

    A value that starts with `[`, `{` or a quote is YAML. Otherwise commas make a list, words get
    their YAML types, and an empty value is null.
    """
    from determined.config.reading import yaml_reader

    source = f"--config {text}"
    name, equals, value = text.partition("=")
    path = tuple(name.strip().split("."))
    if not equals or not all(path):
        return Problem(
            f"expected key=value, got {text!r}",
            hint="for example searcher.max_trials=20",
            source="--config",
        )
    value = value.strip()
    if value[:1] in ("[", "{", '"', "'"):
        document = yaml_reader.read(value, source)
        if document.problems:
            return Problem(document.problems[0].message, path=path, source=source)
        parsed = document.value
    else:
        words = [_word(word.strip()) for word in value.split(",")]
        parsed = words if len(words) > 1 else words[0]
    if path == ("bind_mounts",) and isinstance(parsed, dict):
        parsed = [parsed]
    return path, parsed


def _word(text: str) -> Any:
    from determined.config.reading import yaml_reader

    try:
        return yaml_reader.plain_scalar(text)
    except ValueError:  # a number with too many digits
        return text


def with_value(config: dict[str, Any], path: Path, value: Any) -> dict[str, Any] | Path:
    """Return a copy with one value set, or the path of a value on the way that is no mapping."""
    key = str(path[0])
    if len(path) == 1:
        return {**config, key: value}
    inner = config.get(key)
    if inner is not None and not isinstance(inner, dict):
        return (key,)
    changed = with_value(inner or {}, path[1:], value)
    if isinstance(changed, tuple):
        return (key, *changed)
    return {**config, key: changed}
