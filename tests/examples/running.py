"""Run an example the way its README says, and read what it prints."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

EXAMPLES = Path(__file__).parents[2] / "examples"
DEADLINE_SECONDS = 100


def run_example(folder: str, script: str, *arguments: object, processes: int = 0) -> str:
    """Return what the script printed; with `processes`, torchrun starts that many."""
    launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={processes}"]
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "DET_PROGRESS": "off",
        "PYTHONWARNINGS": "error::UserWarning,error::FutureWarning",
    }
    done = subprocess.run(
        [sys.executable, *(launcher if processes else []), script, *map(str, arguments)],
        cwd=EXAMPLES / folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
    )
    assert done.returncode == 0, f"{folder}/{script} failed:\n{done.stdout}\n{done.stderr}"
    return done.stdout


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
