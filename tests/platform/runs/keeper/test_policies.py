"""Patterns in a log that comes in pieces: the same as looking at each line."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from determined.platform.runs.folder import LogPolicy
from determined.platform.runs.keeper._policies import Pattern, Policies

_PATTERNS = [
    *(".*CUDA out of memory.*", "a.*b", "^a", "b$", r"\Aab", r"ab\Z", "a(?=b)", "(?!b)a", "[^a]b"),
    *(r"a\sb", "(?i)AB", "(?s)a.b", "a|b", ".*a|b.*", ".*?ab", r"\.*", "a{2,}", "", ".*", r"x\.*"),
    *("(?:ab)+", r"\bab\b", "^$", "a++b", r"\Wa", "(?P<n>a)b"),
]


@pytest.mark.parametrize("pattern", _PATTERNS)
@given(text=st.text(alphabet="ab \n.CUDA out of memory", max_size=60))
def test_a_pattern_finds_the_first_line_that_matches(pattern: str, text: str) -> None:
    try:
        plain = re.compile(pattern)
    except re.error:  # possessive quantifiers, before Python 3.11
        pytest.skip("this Python does not know the syntax")
    lines = text.split("\n")
    expected = next((n for n, line in enumerate(lines) if plain.search(line)), None)
    assert Pattern(pattern).first(text) == expected


@given(
    lines=st.lists(st.sampled_from([b"nothing", b"here: needle", b"", b"x" * 50]), max_size=30),
    cuts=st.lists(st.integers(0, 600), max_size=6),
)
def test_the_pieces_of_a_log_make_no_difference(lines: list[bytes], cuts: list[int]) -> None:
    log = b"".join(line + b"\n" for line in lines) + b"the rest"
    policies = Policies((LogPolicy("n", "needle"), LogPolicy("r", "rest")), lambda text: None)
    edges = [0, *sorted(cuts), len(log)]
    for start, stop in zip(edges, edges[1:], strict=False):
        policies.search(log[start:stop])
    policies.search(b"", is_last=True)
    expected = {"r": len(lines)}
    if b"here: needle" in lines:
        expected["n"] = lines.index(b"here: needle")
    assert {match.name: match.line for match in policies.matches} == expected


def test_a_long_line_is_searched_in_quick_pieces() -> None:
    policies = Policies((LogPolicy("oom", ".*CUDA out of memory.*"),), lambda text: None)
    for _ in range(100):
        assert not policies.search(b"x" * 131_072)
    assert policies.search(b" CUDA out of memory\n")
    assert policies.matches[0].line == 0
