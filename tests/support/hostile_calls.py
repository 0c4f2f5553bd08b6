"""Calls of real commands with arguments that hardly fit."""

from __future__ import annotations

from collections.abc import Sequence

import click
from hypothesis import strategies as st

from tools.command_tree import ALL, Words, find

HOSTILE = ("99", "-1", "x", "99999999999999999999999", "\x1b[31m", "", "\udcff", "..", "1,,2")


def _names_nothing(text: str) -> bool:
    """Whether no experiment or trial of a test has this for its id."""
    try:
        return int(text) not in range(1, 20)
    except ValueError:
        return True


_letters = st.characters(min_codepoint=1)  # the end of a word cannot stand in one
_any = st.sampled_from(HOSTILE) | st.text(_letters, max_size=8) | st.integers().map(str)
_text = _any.filter(_names_nothing)


@st.composite
def calls(draw: st.DrawFn, commands: Sequence[Words], asks: Sequence[str] = ()) -> Words:
    """A command with arguments and options of its own.

    Args:
        draw: of hypothesis.
        commands: which ones.
        asks: the verbs that may get the number 1, of which there is something in the home.
    """
    words = draw(st.sampled_from(commands))
    command = find(words)
    text = _text | st.just("1") if words[-1] in asks else _text
    options = [p for p in command.params if isinstance(p, click.Option)]
    arguments = [p for p in command.params if isinstance(p, click.Argument)]
    call: list[str] = []
    for option in draw(st.lists(st.sampled_from(options), max_size=3)) if options else []:
        name = draw(st.sampled_from(option.opts))
        call += [name] if option.is_flag else [name, draw(text)]
    count = draw(st.integers(0, len(arguments) + 1))
    values = draw(st.lists(text, min_size=count, max_size=count))
    last = [*values, *call] if draw(st.booleans()) else [*call, "--", *values]
    return (*words, *last)


def words_of(call: Words) -> Words:
    """The command that a call begins with."""
    return next(words for words in ALL if call[: len(words)] == words)
