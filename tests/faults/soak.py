"""One run killed again and again: `python -m tests.faults.soak --kills 1000`.

It must end with the weights, optimizers, samples and metrics of a run that nobody disturbed. Then
it is measured how much of its time a run uses that is killed once a minute:

- what starting again costs: a new interpreter, from its start to its first batch, several times;
- an estimate from that: of each minute are lost the start, half the time between two saves (what
  is trained after the last one is done again), and the time that one save takes;
- with `--minutes N`: a real run in new interpreters, killed every 60 seconds, with batches that
  sleep for 20 ms in place of an accelerator; the share is that of the batches that it got to, each
  counted once at the time that one takes in an undisturbed stretch.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.support.victims import (
    Group,
    Setup,
    batches_noted,
    check_diary,
    check_storage,
    leftovers,
    preload,
    run,
)

DEADLINE_SECONDS = 120.0
SECONDS_BETWEEN_KILLS = 60.0
SLEEPY = Setup(batches=10**6, interval=25, keep_latest=2, batch_seconds=0.02)  # a save in 0.5 s


def soak(root: Path, kills: int, seed: int) -> None:
    """Kill one run so often and compare it with an unbroken one."""
    preload()
    draw = random.Random(seed)
    setup = Setup(batches=4 * kills, keep_latest=2)
    began = time.monotonic()
    expected = Group(run, setup, root / "unbroken").result()
    unbroken_seconds = time.monotonic() - began
    done = in_save = 0
    began = time.monotonic()
    while done < kills:
        child = Group(run, setup, root / "killed")
        child.wait_until_told(DEADLINE_SECONDS)
        time.sleep(draw.uniform(0, 0.1))
        if not child.kill():
            break
        done += 1
        in_save += bool(leftovers(root / "killed"))
        check_storage(root / "killed")
        if done % 100 == 0:
            say(f"{done} kills, {max(batches_noted(root / 'killed')) + 1} batches")
    ending = Group(run, setup, root / "killed").result()
    seconds = time.monotonic() - began
    assert ending == expected, f"seed {seed}: {ending} instead of {expected}"
    check_diary(root / "killed", root / "unbroken", f"seed {seed}")
    assert leftovers(root / "killed") == []
    noted = batches_noted(root / "killed")
    again = len(noted) - setup.batches
    lost = [a + 1 - b for a, b in itertools.pairwise(noted) if b <= a]
    say(
        f"{done} kills, {in_save} of them in a save, in {seconds:.0f} s; the same end as unbroken "
        f"({unbroken_seconds:.0f} s): {ending.weights[:16]}. {setup.batches} batches, {again} done "
        f"again, at most {max(lost)} after one kill."
    )


def start(folder: Path, setup: Setup) -> subprocess.Popen[bytes]:
    folder.mkdir(exist_ok=True)
    return subprocess.Popen(
        [sys.executable, "-m", "tests.support.victims", folder, json.dumps(vars(setup))],
        cwd=Path(__file__).parents[2],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        start_new_session=True,
        stderr=subprocess.DEVNULL,
    )


def kill(process: subprocess.Popen[bytes]) -> None:
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def wait_for_batches(folder: Path, count: int) -> None:
    """Wait until the diary has so many more batches."""
    wanted = len(batches_noted(folder)) + count
    deadline = time.monotonic() + DEADLINE_SECONDS
    while len(batches_noted(folder)) < wanted:
        assert time.monotonic() < deadline, "no batch is trained"
        time.sleep(0.01)


def measure_restarts(root: Path, times: int = 5) -> float:
    """Return the seconds from the start of an interpreter to its first batch after a resume."""
    setup = dataclasses.replace(SLEEPY, interval=5, batch_seconds=0.0)
    first = start(root / "restarts", setup)
    wait_for_batches(root / "restarts", 20)
    kill(first)
    seconds = []
    for _ in range(times):
        began = time.monotonic()
        process = start(root / "restarts", setup)
        wait_for_batches(root / "restarts", 1)
        seconds.append(time.monotonic() - began)
        kill(process)
    began = time.monotonic()
    subprocess.run([sys.executable, "-c", "import torch, torch._dynamo"], check=True)
    imports = time.monotonic() - began
    cost = statistics.median(seconds)
    say(
        f"starting again: {cost:.1f} s to the first batch ({min(seconds):.1f} to "
        f"{max(seconds):.1f} in {times}); to import torch alone takes {imports:.1f} s"
    )
    for between_saves in (0.5, 2.0, 10.0):
        share = 1 - (cost + between_saves / 2 + 0.1) / SECONDS_BETWEEN_KILLS
        say(f"estimate, killed every 60 s with a save every {between_saves:g} s: {share:.1%}")
    return cost


def live(root: Path, minutes: int) -> None:
    """Run for real, killed once a minute."""
    folder = root / "live"
    began = time.monotonic()
    process = start(folder, SLEEPY)
    wait_for_batches(folder, 10)
    stretch = time.monotonic()
    before = len(batches_noted(folder))
    time.sleep(10)
    batch_seconds = (time.monotonic() - stretch) / (len(batches_noted(folder)) - before)
    for minute in range(1, minutes + 1):
        time.sleep(max(0.0, began + minute * SECONDS_BETWEEN_KILLS - time.monotonic()))
        kill(process)
        if minute < minutes:
            process = start(folder, SLEEPY)
    seconds = time.monotonic() - began
    useful = max(batches_noted(folder)) + 1
    say(
        f"{minutes} minutes for real, {minutes} kills: {useful} batches of "
        f"{1000 * batch_seconds:.1f} ms, {useful * batch_seconds / seconds:.1%} of the time"
    )


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--minutes", type=int, default=0, help="of a real run, killed once in each")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**31))
    arguments = parser.parse_args()
    say(f"seed {arguments.seed}")
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        soak(Path(folder), arguments.kills, arguments.seed)
        measure_restarts(Path(folder))
        if arguments.minutes:
            live(Path(folder), arguments.minutes)


if __name__ == "__main__":
    main()
