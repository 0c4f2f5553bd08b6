"""How many runs survive the death of ranks, and how soon they train again.

    OMP_NUM_THREADS=1 python -m benchmarks.elastic [--runs 20] [--deaths 3]

Each run trains on two ranks, one of which kills itself so many times; torchrun (as it is, and as
our launcher sets it up) starts them again, and they continue from their newest checkpoint. A run
has survived if it ends with the weights of an unbroken one. The time from a death to training again
contains the start of Python and torch: it is printed beside that of a first start.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

TORCHRUN = [sys.executable, "-m", "torch.distributed.run"]
LAUNCHERS = {
    "torchrun": [*TORCHRUN, "--standalone", "--nproc_per_node=2", "--max-restarts={}", "-m"],
    "determined.launch": [
        *(sys.executable, "-m", "determined.launch.torch_distributed"),
        *("--nproc_per_node=2", "--max-restarts={}", "--", sys.executable, "-m"),
    ],
}
DEADLINE_SECONDS = 300


def run(launcher: str, deaths: int, directory: Path) -> str:
    """Train to the end, and return the digest of the weights (empty if there are none)."""
    command = [part.format(deaths) for part in LAUNCHERS[launcher]]
    command += ["tests.support.elastic", str(directory), str(deaths)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_SECONDS)
    except subprocess.TimeoutExpired:
        return ""
    if done.returncode != 0:
        print(f"\n{done.stderr[-4000:]}", file=sys.stderr)
        return ""
    return (directory / "weights").read_text()


def seconds_to_training_again(directory: Path, deaths: int) -> list[float]:
    """Return, for each death, the time until the last rank of the next attempt trained."""
    found = []
    for attempt in range(deaths):
        died = list(directory.glob(f"death-{attempt}-*"))
        again = list(directory.glob(f"training-{attempt + 1}-*"))
        if died and len(again) == 2:
            back = max(float(path.read_text()) for path in again)
            found.append(back - float(died[0].read_text()))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--deaths", type=int, default=3)
    parser.add_argument("--launcher", choices=LAUNCHERS, action="append")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        began = time.time()
        wanted = run("torchrun", 0, directory)
        first = max(float(path.read_text()) for path in directory.glob("training-*")) - began
    print(f"first start to training: {first:.1f} s")
    for launcher in options.launcher or LAUNCHERS:
        survived, seconds = 0, []
        for number in range(options.runs):
            with tempfile.TemporaryDirectory() as name:
                survived += run(launcher, options.deaths, Path(name)) == wanted
                seconds += seconds_to_training_again(Path(name), options.deaths)
            print(f"\r{launcher}: {survived} of {number + 1}", end="", file=sys.stderr, flush=True)
        print(f"{launcher}: survived {survived}/{options.runs}", end="")
        if seconds:
            print(
                f", death to training again: median {statistics.median(seconds):.1f} s, "
                f"worst {max(seconds):.1f} s",
                end="",
            )
        print(flush=True)


if __name__ == "__main__":
    main()
