"""Run each script undisturbed, again undisturbed, and with kills; print what came out."""

from __future__ import annotations

import importlib.metadata
import os
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

_NAMES = {
    "ours": ("here", "determined-pytorch"),
    "lightning": ("Lightning, stateful loader", "lightning"),
    "accelerate": ("Accelerate, stateful loader", "accelerate"),
    "transformers": ("Hugging Face Trainer", "transformers"),
}
KILLS = (210, 430, 710)  # batches; none of them ends an epoch or is saved
_EVERY = {"every 20 batches": 20, "every epoch": 0}


class FailedError(Exception):
    """A script ended with an error; the message is the end of its output."""


@dataclass
class Run:
    """What a training left: its fingerprint, and how many batches it trained, with those twice."""

    weights: str = ""
    batches: int = 0


def train(script: str, folder: Path, every: int, kills: tuple[int, ...] = ()) -> Run:
    """Train to the end, killed when a batch in `kills` is done."""
    run = Run()
    for kill in (*kills, None):
        _once(script, folder, every, kill, run)
    return run


def _once(script: str, folder: Path, every: int, kill: int | None, run: Run) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", f"benchmarks.kills.{script}"]
        + ["--folder", str(folder), "--every", str(every)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "DET_HOME": str(folder / "home"), "HF_HUB_OFFLINE": "1"},
    )
    assert process.stdout is not None
    told: list[str] = []
    with process:
        for line in process.stdout:
            told.append(line)
            if found := re.match(r"batch (\d+)", line):
                run.batches += 1
                if kill is not None and int(found[1]) >= kill:
                    process.kill()
                    break
            elif found := re.match(r"weights (\w+)", line):
                run.weights = found[1]
    if kill is None and process.returncode != 0:
        raise FailedError("".join(told[-12:]))


def row(script: str, every: int, parent: Path) -> str:
    """One line of the table."""
    name, package = _NAMES[script]
    label = f"{name} {importlib.metadata.version(package)}"
    cells = []
    try:
        whole, again = (train(script, parent / f"{script}-{i}", every) for i in range(2))
        cells.append("yes" if whole.weights == again.weights else "no")
        killed = train(script, parent / f"{script}-killed", every, KILLS)
        cells.append("**yes**" if killed.weights == whole.weights else "no")
        cells.append(str(killed.batches - whole.batches))
    except FailedError as error:
        print(f"{label} failed:\n{error}", file=sys.stderr)
        cells = [*cells, "fails", ""][:3]
    return f"| {label} | {' | '.join(cells)} |"


def main() -> int:
    """Print a table for each way to save."""
    chosen = sys.argv[1:] or list(_NAMES)
    for title, every in _EVERY.items():
        print(f"\nSaved {title}:\n")
        print("| | same weights when run twice | same weights after three kills | trained twice |")
        print("|---|---|---|---|")
        with tempfile.TemporaryDirectory() as parent:
            for script in chosen:
                print(row(script, every, Path(parent)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
