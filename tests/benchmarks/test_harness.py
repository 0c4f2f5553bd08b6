"""The benchmark harness: real contenders take turns, and the numbers reach file and page."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.report import markdown, numbers, update

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.multiprocess
@pytest.mark.slow
def test_a_quick_run_measures_all_contenders_in_every_round(tmp_path: Path) -> None:
    output = tmp_path / "quick.json"
    command = [sys.executable, "-m", "benchmarks", "--quick", "--only", "tiny", "--rounds", "2"]
    done = subprocess.run(
        [*command, "--output", str(output)],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    tiny, memory = json.loads(output.read_text())["results"]
    assert set(tiny["values"]) == set(tiny["cpu"]) == {"plain", "ours", "ours, bare"}
    assert all(len(column) == 2 and min(column) > 0 for column in tiny["values"].values())
    assert memory["values"]["plain"][0] > 50
    assert "ours, bare" in done.stdout


def result(kind: str, **values: list[float]) -> dict[str, Any]:
    return {
        "name": kind,
        "title": f"a {kind}",
        "unit": "µs",
        "kind": kind,
        "goals": {"ours": 1.05},
        "values": values,
    }


def test_numbers_compare_turns_of_the_same_round() -> None:
    found = numbers(result("ratio", plain=[1.0, 10.0, 2.0], ours=[1.0, 20.0, 6.0]))
    assert found == {"ours": (2.0, 1.5, 2.5)}
    found = numbers(result("difference", plain=[1.0, 10.0, 2.0], ours=[2.0, 20.0, 6.0]))
    assert found["ours"].median == 4.0


def test_the_page_keeps_all_but_its_numbers() -> None:
    page = (ROOT / "docs" / "performance.md").read_text()
    results = {
        "machine": {
            "date": "today",
            "processor": "one",
            "cores": 2,
            "load_before": 0.5,
            "python": "3",
            "versions": {"torch": "2"},
        },
        "results": [result("ratio", plain=[1.0], ours=[1.5]), result("growth", **{"1": [4.0]})],
    }
    updated = update(page, markdown(results))
    assert "1.500 (1.500-1.500) MISSES 1.05" in updated
    assert "1: +4.0" in updated
    assert update(updated, "nothing") == update(page, "nothing")
    with pytest.raises(ValueError, match="must have the lines"):
        update("no marks", "")
