"""Names that mean harm are shown as text: on terminals, in files, by the dashboard."""

from __future__ import annotations

import json
import re
import sqlite3
from pathlib import Path

import pytest

from tests.cli.det import call_det, det_on_a_terminal
from tests.faults.platform.hostile_home import POISON, make_hostile


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("hostile") / "home"
    make_hostile(made)
    return made


@pytest.fixture(scope="module")
def names(home: Path) -> dict[str, str]:
    """Words that stand for things of the home on a command line."""
    store = sqlite3.connect(home / "store.db")

    def one(query: str) -> str:
        return str(store.execute(query).fetchone()[0])

    found = {
        "MODEL": one("SELECT name FROM model"),
        "WORKSPACE": one("SELECT name FROM workspace WHERE id > 1"),
        "PROJECT": one("SELECT name FROM project WHERE id > 1"),
        "UUID": one("SELECT uuid FROM checkpoint WHERE state='COMPLETED'"),
        "CONFIG": str(home.parent / "config.yaml"),
    }
    store.close()
    Path(found["CONFIG"]).write_text(f"name: {json.dumps(POISON)}\n{json.dumps(POISON)}: 1\n")
    return found


_SHOWS = [
    *("e list --all", "e list-trials 1", "e list-checkpoints 1", "e compare 1 2", "e config 1"),
    *(
        "e describe 1",
        "e describe 1 --metrics",
        "e logs 1 --tail 20",
        "e logs 3",
        "e validate CONFIG",
    ),
    *("t describe 1", "t describe 1 --metrics", "t logs 1", "c list", "c describe UUID"),
    *("m list", "m describe MODEL", "m list-versions MODEL", "w list", "w describe WORKSPACE"),
    *("w list-projects WORKSPACE", "p list WORKSPACE", "p describe WORKSPACE PROJECT"),
    *("job list", "slot list", "user list", "user whoami", "store df", "supervisor status"),
    *("e describe 99", "m describe POISON", "w describe POISON", "e describe POISON", "POISON"),
    *("c describe POISON", "e list --POISON", "e logs 1 --search POISON", "e logs 1 --search ["),
    *("e list --sort POISON", "preview-search CONFIG", "e create CONFIG POISON"),
]


@pytest.mark.parametrize("call", _SHOWS)
def test_no_control_character_reaches_a_terminal(
    home: Path, names: dict[str, str], call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")  # so that none of them is ours
    names = {**names, "POISON": POISON, "--POISON": f"--{POISON}"}
    words = [names.get(word, word) for word in call.split()]
    for more in ([], ["--json"], ["--csv"]):
        answer = call_det(*words, *more, home=home, on_a_terminal=True)
        assert "Traceback" not in answer.errors, answer.errors
        text = answer.output + answer.errors
        assert text.replace("\n", "").isprintable(), [c for c in text if not c.isprintable()][:9]


_ON_A_TERMINAL = ["e list --all", "t describe 1 --metrics", "t logs 1", "e describe 1 --json"]
_OUR_COLORS = re.compile(r"\x1b\[[0-9;]*m")


@pytest.mark.multiprocess
@pytest.mark.parametrize("call", [*_ON_A_TERMINAL, "m describe POISON"])
def test_a_real_terminal_gets_text_and_colors(home: Path, call: str) -> None:
    words = [POISON if word == "POISON" else word for word in call.split()]
    with det_on_a_terminal(*words, columns=2000, environment={"DET_HOME": str(home)}) as terminal:
        terminal.end()
        shown = terminal.output
    assert "owned" in shown  # what is in the poison
    left = _OUR_COLORS.sub("", shown).replace("\r\n", "")
    assert left.isprintable(), [c for c in left if not c.isprintable()][:9]
