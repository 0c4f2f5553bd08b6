"""The token of a home: drawn once, readable by its owner alone."""

from __future__ import annotations

import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from determined.dashboard.server.access import Access
from determined.dashboard.server.token import FILE_NAME, derive, load_token


def test_the_token_is_drawn_once_and_only_its_owner_can_read_it(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with ThreadPoolExecutor(8) as pool:
        tokens = set(pool.map(lambda _: load_token(home), range(32)))
    assert len(tokens) == 1
    assert len(tokens.pop()) >= 32
    assert stat.S_IMODE((home / FILE_NAME).stat().st_mode) == 0o600
    assert [path.name for path in home.iterdir()] == [FILE_NAME]


def test_a_token_that_others_could_read_is_closed_again(tmp_path: Path) -> None:
    token = load_token(tmp_path)
    (tmp_path / FILE_NAME).chmod(0o644)
    assert load_token(tmp_path) == token
    assert stat.S_IMODE((tmp_path / FILE_NAME).stat().st_mode) == 0o600


@pytest.mark.parametrize("content", ["", "short", "ä" * 40])
def test_a_damaged_token_is_drawn_anew(tmp_path: Path, content: str) -> None:
    (tmp_path / FILE_NAME).write_text(content)
    token = load_token(tmp_path)
    assert len(token) >= 32
    assert load_token(tmp_path) == token


def test_derived_secrets_differ_by_purpose() -> None:
    assert derive("a", "cookie") != derive("a", "verbs")
    assert derive("a", "cookie") != derive("b", "cookie")
    assert "token" not in repr(Access("a-secret-token-of-a-home"))
