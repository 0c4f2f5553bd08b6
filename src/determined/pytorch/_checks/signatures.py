"""How to call the methods of a trial, whatever its parameters are called; decided once."""

from __future__ import annotations

import ast
import functools
import inspect
import textwrap
from collections.abc import Callable
from typing import Any

from determined.errors import InvalidExperimentException

_TRAIN = ("batch", "epoch_idx", "batch_idx")


def train_call(train_batch: Callable[..., Any]) -> Callable[[Any, int, int], Any]:
    """Return what calls `train_batch` by position, raising if nothing can."""
    signature = _signature(train_batch)
    if signature is None or _first_names(signature, 3) == _TRAIN:
        return train_batch
    if _binds(signature, **dict.fromkeys(_TRAIN)):  # in another order, or as keywords
        return lambda batch, epoch_idx, batch_idx: train_batch(
            batch=batch, epoch_idx=epoch_idx, batch_idx=batch_idx
        )
    if _binds(signature, None, None, None):
        return train_batch
    raise InvalidExperimentException(
        "train_batch is called with a batch, the epoch index and the batch index, but it takes "
        f"{signature}. Write def train_batch(self, batch, epoch_idx, batch_idx)."
    )


def of_set(method: Callable[..., Any], set_name: str | None) -> Callable[..., Any]:
    """Return a method that knows its validation set, if it has a parameter `set_name`."""
    signature = _signature(method)
    if signature is None or "set_name" not in signature.parameters:
        return method
    return functools.partial(method, set_name=set_name)


def evaluate_call(
    evaluate_batch: Callable[..., Any], set_name: str | None = None
) -> Callable[[Any, int], Any]:
    """Return what calls `evaluate_batch` by position, with or without the number of the batch."""
    evaluate_batch = of_set(evaluate_batch, set_name)
    signature = _signature(evaluate_batch)
    if signature is None or _first_names(signature, 2) == ("batch", "batch_idx"):
        return evaluate_batch
    if _binds(signature, batch=None, batch_idx=None):
        return lambda batch, batch_idx: evaluate_batch(batch=batch, batch_idx=batch_idx)
    if _binds(signature, None, None):
        return evaluate_batch
    if _binds(signature, batch=None):
        return lambda batch, batch_idx: evaluate_batch(batch=batch)
    if _binds(signature, None):
        return lambda batch, batch_idx: evaluate_batch(batch)
    raise InvalidExperimentException(
        "evaluate_batch is called with a batch and, if it takes one, the batch index, but it "
        f"takes {signature}. Write def evaluate_batch(self, batch, batch_idx)."
    )


def check_plain_calls(trial: Any, takes: dict[str, int]) -> None:
    """Raise if a method cannot be called with that many arguments."""
    for name, count in takes.items():
        signature = _signature(of_set(getattr(trial, name), None))
        if signature is not None and not _binds(signature, *[None] * count):
            words = {0: "no argument", 1: "one argument"}[count]
            raise InvalidExperimentException(
                f"{name} is called with {words}, but it takes {signature}."
            )


def returned_names(method: Callable[..., Any]) -> set[str] | None:
    """Return the keys of the dictionaries that a method's source returns, if it shows them all."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(method)))
    except (OSError, TypeError, SyntaxError, ValueError):
        return None
    function = tree.body[0]
    if not isinstance(function, ast.FunctionDef) or function.decorator_list:
        return None
    found: list[frozenset[str]] = []
    for node in _own_nodes(function):
        if isinstance(node, (ast.Yield, ast.YieldFrom)):
            return None
        if isinstance(node, ast.Return):
            names = _keys(node.value)
            if names is None:
                return None
            found.append(names)
    return set(found[0]) if len(set(found)) == 1 else None


def _keys(value: ast.expr | None) -> frozenset[str] | None:
    if not isinstance(value, ast.Dict):
        return None
    keys = [key.value for key in value.keys if isinstance(key, ast.Constant)]
    if len(keys) != len(value.keys) or not all(isinstance(key, str) for key in keys):
        return None
    return frozenset(map(str, keys))


def _own_nodes(function: ast.AST) -> list[ast.AST]:
    nodes: list[ast.AST] = []
    for child in ast.iter_child_nodes(function):
        if not isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)):
            nodes += [child, *_own_nodes(child)]
    return nodes


def _signature(method: Callable[..., Any]) -> inspect.Signature | None:
    try:
        return inspect.signature(method)
    except (TypeError, ValueError):  # of something that is not written in Python
        return None


def _first_names(signature: inspect.Signature, count: int) -> tuple[str, ...]:
    parameters = list(signature.parameters.values())[:count]
    by_position = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return tuple(p.name for p in parameters if p.kind in by_position)


def _binds(signature: inspect.Signature, *args: Any, **kwargs: Any) -> bool:
    try:
        signature.bind(*args, **kwargs)
    except TypeError:
        return False
    return True
