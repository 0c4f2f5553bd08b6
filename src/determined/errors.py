"""Every exception that a user of this package may want to catch.

All derive from `DeterminedError`, and that from `Exception`, so `except Exception` sees them.
Wrong arguments are plain `ValueError` and `TypeError`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class DeterminedError(Exception):
    """Base of every exception defined by this package."""


class InvalidHP(DeterminedError):
    """Raise this in trial code for hyperparameters that cannot work; they are not retried."""

    def __init__(self, msg: str = "these hyperparameters cannot be trained") -> None:
        if not isinstance(msg, str):
            raise TypeError(f"`msg` of InvalidHP must be a str, got {type(msg).__name__}: {msg!r}.")
        super().__init__(msg)
        self.msg = msg


class InvalidExperimentException(DeterminedError):
    """The trial code or its configuration uses the API in a way that cannot work."""


class InvalidDataTypeException(InvalidExperimentException):
    """A data loader or dataset has a type that cannot be used here."""

    def __init__(self, typ: Any, message: str = "") -> None:
        super().__init__(typ, message)
        self.typ = typ
        self.message = message

    def __str__(self) -> str:
        return f"{self.message or 'this type of data cannot be used'} (got {self.typ})"


class InvalidConfigurationException(InvalidExperimentException):
    """The experiment configuration has an invalid value."""

    def __init__(self, config: Any, message: str = "") -> None:
        super().__init__(config, message)
        self.config = config
        self.message = message

    def __str__(self) -> str:
        return f"{self.message or 'this configuration cannot be used'} (in {self.config!r})"


class ConfigurationError(InvalidConfigurationException):
    """The configuration is invalid; `problems` lists everything that is wrong with it."""

    def __init__(self, config: str, problems: Sequence[Any]) -> None:
        super().__init__(config, "")
        self.args = (config, problems)
        self.problems = tuple(problems)

    def __str__(self) -> str:
        return "\n".join(str(problem) for problem in self.problems)


class ForkError(InvalidExperimentException):
    """A fork changes what the state of its parent does not allow to change."""


class InvalidModelException(InvalidExperimentException):
    """The model cannot be trained as it is."""


class InternalException(DeterminedError):
    """Something was used before it existed, or after it ended."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class DistributedError(DeterminedError):
    """Another process of this job failed, vanished or did not answer in time."""


class CheckpointError(DeterminedError):
    """A checkpoint could not be written, read or found."""


class InvalidCheckpointException(CheckpointError):
    """A checkpoint exists, but it is damaged or of a kind that cannot be loaded."""

    def __init__(self, message: str = "the checkpoint cannot be loaded") -> None:
        super().__init__(message)


class CheckpointNotFound(CheckpointError):
    """There is no checkpoint with this name."""

    def __init__(self, message: str = "the checkpoint does not exist") -> None:
        super().__init__(message)


class RunInUseError(CheckpointError):
    """Another process is already training the run with this name."""

    def __init__(
        self,
        run_id: str,
        pid: int | None = None,
        host: str | None = None,
        started: str | None = None,
    ) -> None:
        who = f"process {pid} on {host}, since {started}" if pid else "another process"
        super().__init__(
            f"The run {run_id} is being trained by {who}. Wait for it or stop it; to train beside "
            'it, give this one a name of its own: pytorch.init(run_id="...").'
        )
        self.run_id, self.pid, self.host, self.started = run_id, pid, host, started

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.run_id, self.pid, self.host, self.started)


class NotExactError(CheckpointError):
    """A run cannot continue as it would have gone on, and `pytorch.init(exact=True)` asks for that.

    The message names what differs and the way out.
    """


class CheckpointStateException(CheckpointError):
    """The checkpoint's state does not allow this operation."""


class NoDirectStorageAccess(DeterminedError):
    """The storage rejected the credentials, or there are none."""


class ProxiedDownloadFailed(DeterminedError):
    """A download through an intermediate server failed."""


class MultipleDownloadsFailed(DeterminedError):
    """Every way to download was tried and failed."""


class StopLoadingImplementation(DeterminedError):
    """Ends the loading of trial code early; old trial code may catch it."""


class WorkerError(DeterminedError):
    """A worker process failed."""


class WorkerFinishedGracefully(DeterminedError):
    """A worker process finished normally before anyone waited for it."""


class SkipWorkloadException(DeterminedError):
    """Ends the current piece of work without an error."""


class EnterpriseOnlyError(DeterminedError):
    """The feature does not exist in this edition."""


class APIException(DeterminedError):
    """A request to the platform failed."""


class NotFoundError(APIException):
    """There is no such experiment, trial, checkpoint, model, workspace or project."""


class RefusedError(APIException):
    """The current state does not allow this; the message says why."""


class JournalError(DeterminedError):
    """The journal of a run cannot be written or read."""


class StoreError(DeterminedError):
    """The platform's store cannot be opened, or is inconsistent."""


class StoreVersionError(StoreError):
    """The store was written by another version of this package."""


class OutdatedStoreError(StoreVersionError):
    """The store was written by an older version: the supervisor has yet to migrate it."""


class MetricConflictError(DeterminedError):
    """A second, different value was reported for the same metric at the same step."""


def __getattr__(name: str) -> type[DeterminedError]:
    if name == "RunInUse":  # the name of RunInUseError up to version 0.2
        return RunInUseError
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
