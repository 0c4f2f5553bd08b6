"""The pure parts of the dashboard's JavaScript, and the types of the API that it sees."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tools import api_types

_HERE = Path(__file__).parent
_ROOT = _HERE.parents[2]


def test_the_pure_parts_of_the_page_do_what_they_should() -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed")
    files = sorted(str(path) for path in _HERE.glob("*.test.js"))
    ran = subprocess.run(
        [node, "--test", *files], cwd=_ROOT, capture_output=True, text=True, timeout=100
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    passed = re.search(r"^\S* ?pass (\d+)$", ran.stdout, re.MULTILINE)
    assert passed is not None, ran.stdout
    assert int(passed[1]) >= len(files)


def test_the_types_of_the_api_are_up_to_date() -> None:
    written = api_types.OUTPUT.read_text(encoding="utf-8")
    assert written == api_types.render(), "run `python -m tools.api_types`"


def test_the_lock_file_names_no_registry() -> None:
    lines = (_ROOT / "package-lock.json").read_text(encoding="utf-8").splitlines()
    assert any('"integrity"' in line for line in lines)
    assert not [line for line in lines if '"resolved"' in line]
