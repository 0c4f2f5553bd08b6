"""The reference page of the client, made from its classes: every name of the original, and ours.

`python -m tools.client_reference` writes it; a test compares.
"""

from __future__ import annotations

import enum
import inspect
import re
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

from determined.experimental import client

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "client.md"
_HEAD = """# Client

Every function, attribute and method of `determined.experimental.client` in Determined, and what it
does here; names marked **ours** are additions. [The Python client](../client.md) shows how to use
them. The functions of the module are the methods of one `Determined` object, created when first
needed; `login(master=None, user=None, password=None, ...)` may be called before that, but does
nothing. The same classes can be imported from `determined.experimental` and
`determined.common.experimental`. Attributes hold the values at the time an object was read;
`reload()` reads them again. Times have a time zone.
"""

# What the original has, by the class it has it on.
ORIGINAL: dict[str, str] = {
    "Determined": """create_experiment get_experiment get_trial get_checkpoint list_experiments
        create_model get_model get_model_by_id list_models get_models get_model_labels
        create_workspace get_workspace list_workspaces delete_workspace iter_trials_metrics
        stream_trials_metrics stream_trials_training_metrics stream_trials_validation_metrics
        create_user get_user_by_id get_user_by_name list_users whoami get_session_username logout
        list_oauth_clients add_oauth_client remove_oauth_client""",
    "Experiment": """id config state labels archived name progress description notes project_id
        workspace_id activate pause cancel kill archive unarchive delete reload wait
        await_first_trial list_trials iter_trials get_trials list_checkpoints top_checkpoint
        top_n_checkpoints download_code set_name set_description set_notes add_label remove_label
        set_labels move_to_project delete_tensorboard_files get_pachyderm_config""",
    "Trial": """id experiment_id hparams summary_metrics state iter_logs logs kill reload
        get_experiment iter_metrics stream_metrics stream_training_metrics
        stream_validation_metrics list_checkpoints top_checkpoint select_checkpoint
        get_checkpoints""",
    "TrialMetrics": """trial_id trial_run_id steps_completed end_time metrics group batch_metrics
        total_batches""",
    "Checkpoint": """uuid task_id allocation_id report_time resources metadata state training
        download add_metadata remove_metadata write_metadata_file delete remove_files get_metrics
        reload get_pachyderm_commit load""",
    "CheckpointTrainingMetadata": """experiment_config experiment_id trial_id hparams
        validation_metrics""",
    "Model": """name model_id description creation_time last_updated_time metadata labels username
        workspace_id archived get_version list_versions get_versions register_version add_metadata
        remove_metadata set_labels set_description move_to_workspace archive unarchive delete
        reload""",
    "ModelVersion": """model_version model_name model_id checkpoint metadata name comment notes
        set_name set_notes delete iter_metrics reload""",
    "Workspace": """id name create_project delete_project get_project list_projects list_pools
        reload""",
    "Project": """id name description key notes archived n_experiments n_active_experiments
        workspace_id username list_experiments set_name set_description set_key archive unarchive
        add_note remove_note reload""",
    "User": """user_id username admin active remote agent_uid agent_gid agent_user agent_group
        display_name rename activate deactivate change_display_name change_password reload""",
}
_OLDER = ("ExperimentReference", "TrialReference", "TrainingMetrics", "ValidationMetrics")


def reference() -> str:
    """Return the page."""
    parts = [_HEAD]
    for name in ORIGINAL:
        kind = getattr(client, name)
        parts.append(f"\n## {name}\n\n{_first_words(kind)}\n\n{_table(name, kind)}")
    parts.append("\n## Choices\n\n| enum | values |\n|---|---|\n")
    parts += [f"| `{kind.__name__}` | {_values(kind)} |\n" for kind in _enums()]
    parts.append("\n## Older names\n\n| name | |\n|---|---|\n")
    parts += [f"| `{name}` | {_first_words(getattr(client, name))} |\n" for name in _OLDER]
    return "".join(parts)


def members(kind: type) -> dict[str, str]:
    """The public names of a class with what they do, attributes first."""
    found = dict(_attributes(kind))
    for owner in reversed(kind.__mro__[:-1]):
        for name, member in vars(owner).items():
            if name.startswith("_") or name in found:
                continue
            value = inspect.unwrap(getattr(member, "__func__", member))
            if isinstance(value, (property, cached_property)) or inspect.isfunction(value):
                found[name] = _sentence(inspect.getdoc(member) or "")
    return found


def _attributes(kind: type) -> Iterator[tuple[str, str]]:
    section = re.search(r"Attributes:\n((?:    .*\n?|\n)+)", inspect.getdoc(kind) or "")
    for line in (section[1] if section else "").splitlines():
        name, colon, words = line.strip().partition(": ")
        if colon:
            yield name, words


def _table(name: str, kind: type) -> str:
    original = ORIGINAL[name].split()
    rows = []
    for member, words in members(kind).items():
        mark = "" if member in original else "**ours** "
        rows.append(f"| `{_shown(kind, member)}` | {mark}{_cell(words)} |")
    return "\n".join(["| name | |", "|---|---|", *rows, ""])


def _shown(kind: type, name: str) -> str:
    member = inspect.getattr_static(kind, name, None)
    if not inspect.isfunction(member):
        return name
    parameters = list(inspect.signature(member).parameters.values())[1:]
    words = [
        p.name if p.default is p.empty else f"{p.name}={_default(p.default)}" for p in parameters
    ]
    for position, parameter in enumerate(parameters):
        if parameter.kind is parameter.VAR_POSITIONAL:
            words[position] = f"*{parameter.name}"
        if parameter.kind is parameter.VAR_KEYWORD:
            words[position] = f"**{parameter.name}"
    keywords = [i for i, p in enumerate(parameters) if p.kind is p.KEYWORD_ONLY]
    if keywords:
        words.insert(keywords[0], "*")
    return f"{name}({', '.join(words)})"


def _default(value: Any) -> str:
    return f"{type(value).__name__}.{value.name}" if isinstance(value, enum.Enum) else repr(value)


def _enums() -> list[type[enum.Enum]]:
    kinds = (getattr(client, name) for name in client.__all__)
    return [kind for kind in kinds if isinstance(kind, type) and issubclass(kind, enum.Enum)]


def _values(kind: type[enum.Enum]) -> str:
    words = ", ".join(f"`{name}`" for name in kind.__members__)
    doc = inspect.getdoc(kind) or ""
    return words if not doc.startswith("Deprecated") else f"{words}. {doc}"


def _first_words(kind: type) -> str:
    return " ".join((inspect.getdoc(kind) or "").split("\n\n")[0].split())


def _sentence(text: str) -> str:
    return " ".join(text.split("\n\n")[0].split())


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")


if __name__ == "__main__":
    PAGE.write_text(reference())
