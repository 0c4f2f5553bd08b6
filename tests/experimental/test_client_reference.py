"""Every name of the original's client is here, does something, and is in the reference."""

from __future__ import annotations

import inspect

import pytest

from determined.experimental import client
from tools.client_reference import ORIGINAL, PAGE, members, reference


@pytest.mark.parametrize("name", ORIGINAL)
def test_everything_of_the_original_is_there_and_described(name: str) -> None:
    found = members(getattr(client, name))
    assert sorted(set(ORIGINAL[name].split()) - found.keys()) == []
    assert [member for member, words in found.items() if not words] == []


def test_every_method_of_determined_is_a_function_too() -> None:
    methods = list(members(client.Determined))
    assert [name for name in methods if not callable(getattr(client, name, None))] == []
    for name in methods:
        own = inspect.signature(getattr(client, name))
        method = inspect.signature(getattr(client.Determined, name))
        assert list(own.parameters) == list(method.parameters)[1:]
        assert inspect.getdoc(getattr(client, name))


def test_the_reference_shows_every_name() -> None:
    assert PAGE.read_text() == reference(), "write it: python -m tools.client_reference"
