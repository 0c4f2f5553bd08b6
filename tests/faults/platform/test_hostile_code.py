"""Code whose files have names that mean harm, and texts of a megabyte: all of it is only data."""

from __future__ import annotations

import io
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from determined.platform.homes.code_archive import extract_archive
from tests.cli.det import call_det
from tests.dashboard.served import Served, served
from tests.faults.platform.hostile_home import POISON
from tests.support.lab import Lab

pytestmark = [pytest.mark.multiprocess, pytest.mark.slow]

_NAMES = [
    *(name for name in POISON.replace("/", "\n").split("\n") if name.strip(".\r")),
    *("-rf", "--help", "$(touch owned)", "a\nb.py", "\x1b]0;owned\x07", "\u202egnp.py", "=1+1.csv"),
    *("<img src=x onerror=alert(1)>", " ", "...", "CON", "x" * 250, os.fsdecode(b"\xff\xfe.py")),
]
_SCRIPT = "import os; print(sorted(map(os.fsencode, os.listdir('.'))))"
_MEGABYTE = "long " * 200_000


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A home with an experiment of hostile code, and one of texts without end."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DET_SUPERVISOR_IDLE_SECONDS", "60")
        lab = Lab(tmp_path_factory.mktemp("hostile"))
        lab.create(_SCRIPT, files=dict.fromkeys(_NAMES, "text"))
        lab.create(
            "pass",
            name=_MEGABYTE,
            labels=[_MEGABYTE],
            hyperparameters={"x": _MEGABYTE},
        )
        assert lab.wait(1).state == lab.wait(2).state == "COMPLETED", lab.account()
        yield lab
        lab.close()


@pytest.fixture(scope="module")
def shown(lab: Lab) -> Iterator[Served]:
    with served(lab.home) as found:
        yield found


def test_every_file_reaches_the_trial(lab: Lab) -> None:
    (run,) = lab.runs(1)
    expected = sorted(map(os.fsencode, ["script.py", *_NAMES]))
    assert str(expected) in lab.log(run)
    assert not list(lab.folder.rglob("owned"))


def test_every_file_is_listed_and_shown(shown: Served) -> None:
    listed = [file["path"] for file in shown.json("/api/experiments/1/code")["files"]]
    assert len(listed) == len(_NAMES) + 1
    for path in listed:
        answer = shown.client.get("/api/experiments/1/code/file", params={"path": path})
        assert answer.status_code < 500, answer.text
        assert answer.status_code == (404 if path == "??.py" else 200), path  # no text, so no name
    for path in ("../../store.db", "/etc/passwd", "..", "a/../../../store.db", "\0", ""):
        answer = shown.client.get("/api/experiments/1/code/file", params={"path": path})
        assert answer.status_code in (400, 404, 422), path


def test_downloaded_code_is_the_same(shown: Served, tmp_path: Path) -> None:
    answer = shown.client.get("/api/experiments/1/code/download")
    extract_archive(io.BytesIO(answer.content), tmp_path / "code")
    found = {path.name for path in (tmp_path / "code").iterdir()}
    assert found == {"script.py", *_NAMES}


@pytest.mark.parametrize(
    "call",
    [
        *("e list --all", "e describe 1", "e describe 2", "e config 2", "e compare 1 2"),
        *("t describe 2", "e list-trials 2", "job list", "e download 1 OUT"),
    ],
)
def test_commands_show_them_at_once_and_as_text(
    lab: Lab, call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    words = [str(tmp_path / "out") if word == "OUT" else word for word in call.split()]
    began = time.monotonic()
    answer = call_det(*words, home=lab.home.path, on_a_terminal=True)
    assert time.monotonic() - began < 60
    assert "Traceback" not in answer.errors, answer.errors
    assert (answer.output + answer.errors).replace("\n", "").isprintable()


def test_the_dashboard_shows_them_at_once(shown: Served) -> None:
    for path in ("", "/1", "/2", "/2/trials", "/2/configuration", "/2/search"):
        began = time.monotonic()
        answer = shown.client.get(f"/api/experiments{path}")
        assert answer.status_code in (200, 404), answer.text[:300]
        assert time.monotonic() - began < 30, path
