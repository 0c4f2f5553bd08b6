"""The reference of configuration keys, written from the models so that it cannot grow stale.

`python -m tools.config_reference` writes the page and the JSON schema; a test compares.
"""

# ruff: noqa: E501  (lines of the page)

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from determined.config import schema
from determined.config.messages.describe import expected
from determined.config.model import sections
from determined.config.model.experiment import Configuration
from determined.config.model.hyperparameters import RANGES
from determined.config.model.searcher import SEARCHERS, Halving, Searcher
from determined.config.model.storage import STORAGES, Storage
from determined.config.model.types import Section, as_data

_REFERENCE = Path(__file__).parents[1] / "docs" / "reference"
PAGE = _REFERENCE / "configuration.md"
SCHEMA = _REFERENCE / "experiment.schema.json"
_HEAD = """# Configuration

A YAML file describes an experiment. Most files need no more than this:

```yaml
name: mnist
entrypoint: python3 -m determined.launch.torch_distributed python3 train.py
hyperparameters:
  learning_rate: {type: log, minval: -4, maxval: -1}
  dropout: 0.25
searcher:
  name: adaptive_asha
  metric: validation_loss
  max_trials: 20
  max_time: 16
  time_metric: epochs
resources:
  slots_per_trial: 2
```

`det experiment validate CONFIG` checks a file and prints it with all defaults filled in. It reports all problems
at once, each with its line. `det experiment schema` prints a [JSON Schema](experiment.schema.json) for editors.

**Syntax.** YAML 1.2: `1e-4` is a number, `yes` and `on` are text. Numbers may have underscores (`60_000`), integers may
be binary, octal or hexadecimal (`0b11`, `0o17`, `0xff`). Duplicate keys, tags and multiple documents are rejected.
Null means the default, as if the key were absent. Unknown keys are errors.

**Precedence.** `--config key=value` overrides the file (`searcher.max_trials=5`; a value that starts with `[`, `{` or
a quote is YAML, otherwise commas make a list). A template, the platform's `checkpoint_storage` and the defaults below
then fill in what is missing. Mappings merge key by key; scalars and lists in the file win. `searcher` and
`checkpoint_storage` merge only with a section of the same kind, `log_policies` merge by name, and `bind_mounts` and
`devices` by `container_path`.

**Old forms.** These still work, with a note that shows the new form: `module:Class` as an entrypoint, `max_length`
instead of `max_time` and `time_metric`, log policies without a name, variables under `gpu`. Keys marked *old form*
apply only to entrypoints with `module:Class` or `--trial`; for scripts, a note says what to pass to `fit` instead.

**Secrets.** `access_key`, `secret_key`, `connection_string`, `credential`, `registry_auth`, everything under
`data.secrets`, environment variables whose names suggest a secret (`..._KEY`, `...TOKEN...`, `...PASSWORD...`) and the
paths of hook URLs are shown as `********` wherever a configuration is displayed.

The rest of this page is generated from the code that checks configurations.
"""
_FILLED_IN = {
    "name": "three random words",
    "entrypoint": "required",
    "checkpoint_storage": "the platform's",
    "reproducibility": "see below",
    "experiment_seed": "the time",
}
_HYPERPARAMETERS = """A scalar, list or null is a constant. A mapping without `type` is a group, nested as deep
as you like; a mapping with `type` is one of these.
"""
_HOOKS = """A URL (`http://` or `https://`) receives a POST with the experiment as JSON; any other string runs in the shell, a list
runs without one. Both run in the background and cannot fail the experiment.
"""


def page() -> str:
    """Return the whole page."""
    common = set(Searcher.model_fields)
    halving = set(Halving.model_fields) - common
    storage = set(Storage.model_fields)
    parts = [_HEAD, "## Top level\n", table(Configuration)]
    parts += ["## `hyperparameters`\n", _HYPERPARAMETERS]
    for model in RANGES:
        parts += [f"### `{model.model_fields['type'].annotation.__args__[0]}`\n"]  # type: ignore[union-attr]  # a Literal
        parts += [f"{model.__doc__}\n", table(model, skip={"type"})]
    parts += [
        "## `searcher`\n",
        "Keys that every searcher takes, besides `name`:\n",
        table(Searcher),
    ]
    for name, kind in SEARCHERS.items():
        parts += [f"### `{name}`\n", f"{kind.__doc__}\n"]
        skip = common | {"name"}
        if set(kind.model_fields) > skip:
            parts.append(table(kind, skip=skip, first=halving))
    parts += [
        "## `checkpoint_storage`\n",
        "Keys that every kind of storage takes, besides `type`:\n",
        table(Storage),
    ]
    for name, store in STORAGES.items():
        parts += [f"### `{name}`\n", f"{store.__doc__}\n", table(store, skip=storage | {"type"})]
    for key, model, extra in (
        ("resources", sections.Resources, ""),
        ("environment", sections.Environment, ""),
        ("log_policies", sections.LogPolicy, "A list of:\n"),
        ("integrations", sections.Integrations, _HOOKS),
        ("reproducibility", sections.Reproducibility, ""),
        ("retention_policy", sections.RetentionPolicy, ""),
        ("profiling", sections.Profiling, ""),
        ("optimizations", sections.Optimizations, ""),
        ("bind_mounts", sections.BindMount, "A list of:\n"),
    ):
        parts += [f"## `{key}`\n", *([extra] if extra else []), table(model)]
    return "\n".join(parts)


def table(model: type[Section], skip: set[str] | None = None, first: set[str] | None = None) -> str:
    """Write the keys of a model as rows: what they take, their defaults, what they are for."""
    fields = {k: f for k, f in model.model_fields.items() if k not in (skip or set())}
    names = sorted(fields, key=lambda name: name not in (first or set()))
    rows = [_row(fields[name].alias or name, fields[name]) for name in names]
    return "\n".join(["| key | takes | default | |", "|---|---|---|---|", *rows, ""])


def _row(key: str, field: FieldInfo) -> str:
    cells = (f"`{key}`", expected(field), _default(key, field), field.description or "")
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _default(key: str, field: FieldInfo) -> str:
    if key in _FILLED_IN:
        return _FILLED_IN[key]
    if field.default is PydanticUndefined:
        return "required"
    value: Any = as_data(field.default)
    if isinstance(value, dict) and len(value) > 1:
        return "see below"
    text = json.dumps(value) if not isinstance(value, str) else value or '""'
    return f"`{text}`"


def schema_text() -> str:
    """The JSON schema as its file has it."""
    return json.dumps(schema(), indent=2, sort_keys=True) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page())
    SCHEMA.write_text(schema_text())
