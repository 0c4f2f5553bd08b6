"""Exceptions: one family, and whole after a trip to another process."""

from __future__ import annotations

import inspect
import pickle

import pytest

import determined
from determined import errors
from determined.common.check import CheckFailedError

_ALL = [value for value in vars(errors).values() if inspect.isclass(value)]
_FAMILY = [value for value in _ALL if issubclass(value, Exception)] + [CheckFailedError]


@pytest.mark.parametrize("error", _FAMILY)
def test_every_error_is_a_determined_error(error: type[Exception]) -> None:
    assert issubclass(error, errors.DeterminedError)
    assert error.__doc__


def test_all_names_of_the_original_exist() -> None:
    names = [
        "EnterpriseOnlyError",
        "InternalException",
        "InvalidExperimentException",
        "InvalidDataTypeException",
        "InvalidConfigurationException",
        "InvalidModelException",
        "InvalidCheckpointException",
        "StopLoadingImplementation",
        "WorkerError",
        "WorkerFinishedGracefully",
        "SkipWorkloadException",
        "CheckpointNotFound",
        "CheckpointStateException",
        "NoDirectStorageAccess",
        "ProxiedDownloadFailed",
        "MultipleDownloadsFailed",
    ]
    assert [name for name in names if not hasattr(errors, name)] == []


@pytest.mark.parametrize(
    "error",
    [
        determined.InvalidHP("too deep"),
        errors.InvalidDataTypeException(list, "not a loader"),
        errors.InvalidConfigurationException({"a": 1}, "a must be 2"),
        errors.InternalException("not yet"),
        errors.CheckpointNotFound("no checkpoint x"),
        errors.InvalidCheckpointException(),
    ],
)
def test_errors_survive_pickling(error: Exception) -> None:
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert str(copy) == str(error)
    assert vars(copy) == vars(error)


def test_invalid_hp_has_a_message_and_refuses_anything_else() -> None:
    assert determined.InvalidHP("too deep").msg == "too deep"
    assert determined.InvalidHP().msg
    with pytest.raises(TypeError, match="must be a str, got int"):
        determined.InvalidHP(3)  # type: ignore[arg-type]  # the wrong type is the point


def test_messages_name_the_culprit() -> None:
    assert "list" in str(errors.InvalidDataTypeException(list, "not a loader"))
    assert "{'a': 1}" in str(errors.InvalidConfigurationException({"a": 1}, "a must be 2"))


def test_an_older_name_is_still_found() -> None:
    assert errors.RunInUse is errors.RunInUseError
    with pytest.raises(AttributeError, match="RunOutOfUse"):
        errors.RunOutOfUse  # noqa: B018
