"""ExperimentalCoreContext: links from this task to what it uses."""

from __future__ import annotations

from typing import Any

from determined.core.backends.backend import Backend, LocalBackend


class ExperimentalCoreContext:
    """Connects the metrics of this task with a stored checkpoint or model version."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def report_task_using_checkpoint(self, checkpoint: Any) -> None:
        """Say that this task, an inference for example, works with `checkpoint` (or its id)."""
        self._backend.report_task_using("checkpoint", str(getattr(checkpoint, "uuid", checkpoint)))

    def report_task_using_model_version(self, model_version: Any) -> None:
        """Say that this task works with `model_version`."""
        name = getattr(model_version, "model_name", None) or getattr(model_version, "name", "")
        number = getattr(model_version, "model_version", model_version)
        self._backend.report_task_using(
            "model_version", f"{name}:{number}" if name else str(number)
        )


class DummyExperimentalCoreContext(ExperimentalCoreContext):
    """An ExperimentalCoreContext for a run on its own."""

    def __init__(self) -> None:
        super().__init__(LocalBackend())
