"""Every public name is in the reference, and says what it is."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.docs.pages import ROOT
from tools.api_reference import PAGES, listed, written

_MODULES = (
    "determined",
    "determined.core",
    "determined.errors",
    "determined.experimental",
    "determined.launch.torch_distributed",
    "determined.pytorch",
    "determined.pytorch.callbacks",
    "determined.pytorch.experimental",
    "determined.pytorch.samplers",
    "determined.tensorboard",
    "determined.tensorboard.metric_writers.pytorch",
)
_LISTED = listed()


def public(name: str) -> Iterator[tuple[str, Any]]:
    module = importlib.import_module(name)
    names = getattr(module, "__all__", None) or [
        key
        for key, value in vars(module).items()
        if getattr(value, "__module__", None) == name and isinstance(value, type)
    ]
    return ((key, getattr(module, key)) for key in names if not key.startswith("_"))


@pytest.mark.parametrize("module", _MODULES)
def test_every_public_name_is_in_the_reference(module: str) -> None:
    missing = [
        name
        for name, value in public(module)
        if not {f"{module}.{name}", module} & _LISTED
        and not (
            isinstance(value, ModuleType)
            and any(x.startswith(f"{module}.{name}.") for x in _LISTED)
        )
    ]
    assert missing == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_says_what_the_source_says(page: Path) -> None:
    """After a change, write them: `python -m tools.api_reference`."""
    assert page.read_text() == written(page)


def test_the_reference_lists_nothing_that_does_not_exist() -> None:
    for name in _LISTED:
        module, _, attribute = name.rpartition(".")
        try:
            importlib.import_module(name)
        except ModuleNotFoundError:
            assert hasattr(importlib.import_module(module), attribute), name


@pytest.mark.parametrize("name", sorted(_LISTED))
def test_listed_names_and_their_methods_are_described(name: str) -> None:
    module, _, attribute = name.rpartition(".")
    value = getattr(importlib.import_module(module), attribute, None)
    if not inspect.isclass(value) and not inspect.isroutine(value):
        return  # a module, or a value: its description stands behind it in the source
    assert inspect.getdoc(value), name
    if inspect.isclass(value):
        assert [key for key, member in vars(value).items() if _lacks_words(key, member)] == []


def _lacks_words(key: str, member: Any) -> bool:
    function = member.fget if isinstance(member, property) else inspect.unwrap(member)
    function = getattr(function, "__func__", function)
    return not key.startswith("_") and inspect.isfunction(function) and not function.__doc__


def test_docstrings_describe_parameters_that_exist() -> None:
    for file in (ROOT / "src").rglob("*.py"):
        for function in ast.walk(ast.parse(file.read_text())):
            if isinstance(function, ast.FunctionDef):
                described = _described_parameters(ast.get_docstring(function) or "")
                named = function.args
                given = {a.arg for a in (*named.posonlyargs, *named.args, *named.kwonlyargs)}
                given |= {a.arg for a in (named.vararg, named.kwarg) if a is not None}
                assert described <= given, f"{_place(file)}:{function.lineno}"


def _described_parameters(text: str) -> set[str]:
    section = re.search(r"^Args:\n((?:    .*\n?|\n)*)", text, re.MULTILINE)
    return set(re.findall(r"^    \**(\w+):", section[1], re.MULTILINE)) if section else set()


def _place(file: Path) -> str:
    return str(file.relative_to(ROOT))
