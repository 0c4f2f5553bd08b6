"""The name, project and labels of a run that the platform did not start."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

logger = logging.getLogger("determined.core")


@dataclass(frozen=True)
class RunTitle:
    """Empty parts are not given. `project` may be `workspace/project`."""

    name: str = ""
    project: str = ""
    labels: tuple[str, ...] = ()
    description: str = ""


def title_of(
    name: str | None,
    project: str | None,
    labels: Sequence[str] | None,
    description: str | None,
) -> RunTitle:
    """Check the arguments of `init`."""
    for argument, value in (("name", name), ("project", project), ("description", description)):
        if value is not None and not isinstance(value, str):
            raise TypeError(f"`{argument}` must be a string, got {value!r}.")
    if isinstance(labels, str) or not all(isinstance(label, str) for label in labels or ()):
        raise TypeError(f"`labels` must be a list of strings, got {labels!r}.")
    return RunTitle(name or "", project or "", tuple(labels or ()), description or "")


def with_configured(title: RunTitle, config: Mapping[str, Any]) -> RunTitle:
    """Take what is not given from an experiment configuration."""
    project = config.get("project") or ""
    if project and config.get("workspace"):
        project = f"{config['workspace']}/{project}"
    return RunTitle(
        title.name or str(config.get("name") or ""),
        title.project or str(project),
        title.labels or tuple(map(str, config.get("labels") or ())),
        title.description or str(config.get("description") or ""),
    )


def warn_of_ignored_arguments(given: Mapping[str, object]) -> None:
    """Say that arguments have no effect in a trial, whose configuration has them."""
    names = [f"`{name}`" for name, value in given.items() if value]
    if names:
        logger.warning(
            f"{', '.join(names)} of init have no effect in a trial of the platform: its "
            "configuration says what the experiment is called."
        )
