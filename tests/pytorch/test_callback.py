"""Finding the callbacks that fill in a hook."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest

from determined.pytorch import PyTorchCallback
from determined.pytorch._callback import Hooks

_calls: list[Any]


@pytest.fixture(autouse=True)
def _fresh_calls() -> None:
    global _calls
    _calls = []


class _First(PyTorchCallback):
    def on_training_start(self) -> None:
        _calls.append("first")


class _Second(_First):
    """Inherits its hook, and adds one."""

    def on_validation_end(self, metrics: dict[str, Any]) -> None:
        _calls.append(metrics)


def test_hooks_run_in_the_order_of_the_dictionary() -> None:
    class Other(PyTorchCallback):
        def on_training_start(self) -> None:
            _calls.append("other")

    Hooks({"z": Other(), "a": _First()}).call("on_training_start")
    assert _calls == ["other", "first"]


def test_hooks_that_nobody_overrides_are_not_called() -> None:
    hooks = Hooks({"a": _First(), "b": PyTorchCallback()})
    assert hooks.of("on_validation_end") == []
    assert len(hooks.of("on_training_start")) == 1


def test_inherited_hooks_count() -> None:
    hooks = Hooks({"a": _Second()})
    metrics: dict[str, Any] = {}
    hooks.call("on_training_start")
    hooks.call("on_validation_end", metrics)
    assert _calls[0] == "first"
    assert _calls[1] is metrics


def test_decorated_and_assigned_hooks_count() -> None:
    def shout(method: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(method)
        def wrapper(*args: Any, **kwargs: Any) -> None:
            method(*args, **kwargs)
            _calls.append("!")

        return wrapper

    class Decorated(PyTorchCallback):
        @shout
        def on_training_start(self) -> None:
            _calls.append("decorated")

    assigned = PyTorchCallback()
    assigned.on_training_start = lambda: _calls.append("assigned")  # type: ignore[method-assign]
    Hooks({"a": Decorated(), "b": assigned}).call("on_training_start")
    assert _calls == ["decorated", "!", "assigned"]


def test_epoch_start_passes_the_epoch_to_whoever_takes_it() -> None:
    class New(PyTorchCallback):
        def on_training_epoch_start(self, epoch_idx: int) -> None:
            _calls.append(epoch_idx)

    class Any_(PyTorchCallback):
        def on_training_epoch_start(self, *args: Any) -> None:
            _calls.append(args)

    Hooks({"a": New(), "b": Any_()}).call("on_training_epoch_start", 3)
    assert _calls == [3, (3,)]
