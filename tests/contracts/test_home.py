"""Where the home is, and what its owner set there."""

from __future__ import annotations

from pathlib import Path

import platformdirs
import pytest

from determined._contracts.home import home_path, home_settings, make_home


def test_the_home_is_named_or_in_the_users_data_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DET_HOME", str(tmp_path / "mine"))
    assert home_path() == tmp_path / "mine"
    monkeypatch.delenv("DET_HOME")
    assert home_path() == Path(platformdirs.user_data_dir("determined"))


def test_a_named_home_is_made_but_not_the_folder_it_lies_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DET_HOME", "x")
    make_home(tmp_path / "home")
    assert (tmp_path / "home").stat().st_mode & 0o777 == 0o700
    with pytest.raises(FileNotFoundError):
        make_home(tmp_path / "disk" / "home")
    monkeypatch.delenv("DET_HOME")
    make_home(tmp_path / "disk" / "home")
    assert (tmp_path / "disk" / "home").is_dir()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {}),
        ("# nothing", {}),
        ("tracking: false", {"tracking": False}),
        ("tracking: off", {"tracking": "off"}),
        ("a: {b: 1}", {"a": {"b": 1}}),
    ],
)
def test_settings_are_keys_and_values(tmp_path: Path, text: str, expected: object) -> None:
    (tmp_path / "platform.yaml").write_text(text)
    assert home_settings(tmp_path) == expected


@pytest.mark.parametrize("text", ["- a", "a: [", "word"])
def test_what_is_no_settings_names_the_file(tmp_path: Path, text: str) -> None:
    (tmp_path / "platform.yaml").write_text(text)
    with pytest.raises(ValueError, match="platform.yaml"):
        home_settings(tmp_path)


def test_no_file_is_no_setting(tmp_path: Path) -> None:
    assert home_settings(tmp_path) == {}
