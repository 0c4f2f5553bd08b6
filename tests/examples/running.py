"""Run an example the way its README says, and read what it prints."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import warnings
from pathlib import Path
from types import ModuleType

from tests.support.terminal import run_file, run_in_pipes
from tests.support.workers import collect_workers

EXAMPLES = Path(__file__).parents[2] / "examples"
DEADLINE_SECONDS = 100


_ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "DET_PROGRESS": "off",
    "PYTHONWARNINGS": "error::UserWarning,error::FutureWarning",
}


def run_example(folder: str, script: str, *arguments: object, processes: int = 1) -> str:
    """Return what the script printed, in forks of a process that has torch loaded already."""
    path, words = str(EXAMPLES / folder / script), list(map(str, arguments))
    if processes == 1:
        done = run_in_pipes(
            f"from {__name__} import _run; _run({path!r}, *{words!r})",
            deadline_seconds=DEADLINE_SECONDS,
            **_ENVIRONMENT,
        )
        assert done.exit_code == 0, f"{folder}/{script} failed:\n{done.output}\n{done.errors}"
        return done.output
    outcomes = collect_workers(
        processes,
        _run,
        path,
        *words,
        deadline_seconds=DEADLINE_SECONDS,
        process_group=False,
        environment=_ENVIRONMENT,
    )
    found = "\n".join(map(str, outcomes))
    assert not any(outcome.exit_code for outcome in outcomes), f"{folder}/{script} failed:\n{found}"
    return found


def launch_example(folder: str, script: str, *arguments: object, processes: int = 0) -> str:
    """Return what the script printed, run by the very command of its README."""
    launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={processes}"]
    done = subprocess.run(
        [sys.executable, *(launcher if processes else []), script, *map(str, arguments)],
        cwd=EXAMPLES / folder,
        env={**os.environ, **_ENVIRONMENT},
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
    )
    assert done.returncode == 0, f"{folder}/{script} failed:\n{done.stdout}\n{done.stderr}"
    return done.stdout


def _run(path: str, *arguments: str) -> None:
    for category in (UserWarning, FutureWarning):
        warnings.simplefilter("error", category)
    run_file(path, *arguments)


def percentages(output: str) -> list[float]:
    """Return every number before a percent sign, in the order of the output."""
    return [float(number) for number in re.findall(r"([\d.]+)%", output)]


def number_after(output: str, words: str) -> float:
    """Return the first number behind some words."""
    found = re.search(re.escape(words) + r"\s*(\d[\d.]*(?:e[-+]\d+)?)", output)
    assert found is not None, f"there is no number behind {words!r} in:\n{output}"
    return float(found[1].rstrip("."))


def load_example(folder: str, module: str) -> ModuleType:
    """Import one file of an example."""
    spec = importlib.util.spec_from_file_location(module, EXAMPLES / folder / f"{module}.py")
    assert spec is not None
    assert spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded
