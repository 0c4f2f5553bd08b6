"""What the platform adds to a job of Slurm: turnover of tiny trials and of the bare script.

    python -m benchmarks.platform.slurm [--jobs 40] [--rounds 3] [--pending 200]

Needs Slurm's daemons and root (`apt-get install slurm-wlm munge`): a private one is started. In
turns: so many jobs of a script that runs the trial's own code without the platform, submitted with
`sbatch` as fast as it takes them, and a search of as many trials. Then `det experiment list` beside
no job, and beside many that wait.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.platform.cluster import Bench
from tests.support.slurm import PrivateSlurm

_TRIAL = """
from determined import core
with core.init() as ctx:
    ctx.train.report_validation_metrics(1, {"loss": 1.0})
"""


def main() -> None:
    """Measure everything and print it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--pending", type=int, default=200)
    arguments = parser.parse_args()
    os.environ.update(OMP_NUM_THREADS="1", DET_TRACKING="off", DET_SUPERVISOR_IDLE_SECONDS="60")
    with tempfile.TemporaryDirectory(prefix="det-bench-") as name:
        folder = Path(name)
        (folder / "slurm").mkdir()
        slurm = PrivateSlurm(folder / "slurm")
        os.environ.update(slurm.environment, DET_HOME=str(folder / "home"))
        (folder / "home").mkdir()
        settings = f"cluster: {{type: slurm, max_jobs: {max(100, arguments.pending)}}}\n"
        (folder / "home" / "platform.yaml").write_text(settings)
        bench = Bench(folder)
        try:
            bench.run(_TRIAL, 1)
            turns(slurm, bench, arguments.jobs, arguments.rounds)
            lists(slurm, bench, arguments.pending)
        finally:
            bench.close()
            slurm.close()


def turns(slurm: PrivateSlurm, bench: Bench, jobs: int, rounds: int) -> None:
    """Bare jobs and trials, one after the other; prints seconds for each and their ratio."""
    ratios = []
    for _ in range(rounds):
        bare = _seconds(lambda: bare_jobs(slurm, jobs)) / jobs
        ours = _seconds(lambda: bench.run(_TRIAL, jobs)) / jobs
        ratios.append(ours / bare)
        print(f"bare sbatch {bare:.3f} s a job, trials {ours:.3f} s, ratio {ratios[-1]:.2f}")
    print(f"median ratio {statistics.median(ratios):.2f}; load {os.getloadavg()[0]:.1f}")


def bare_jobs(slurm: PrivateSlurm, count: int) -> None:
    """The script of a trial as plain jobs."""
    script = f"#!/bin/bash\nexec {sys.executable} - <<'END'\n{_TRIAL}\nEND\n"
    for _ in range(count):
        words = ["sbatch", "--parsable", "--output=/dev/null", "--cpus-per-task=1", "--chdir=/"]
        subprocess.run(words, input=script, text=True, check=True, capture_output=True)
    slurm.wait_until_idle()


def lists(slurm: PrivateSlurm, bench: Bench, pending: int) -> None:
    """`det experiment list` without jobs, and while many wait."""
    before = _list_seconds()
    for node in ("n1", "n2"):
        slurm.run("scontrol", "update", f"nodename={node}", "state=drain", "reason=bench")
    experiment_id = bench.create(_TRIAL, pending, at_once=pending)

    def listed() -> int:
        return len(slurm.run("squeue", "--noheader", "--me").splitlines())

    while listed() < pending:
        time.sleep(0.2)
    print(f"det e list: {before:.3f} s without jobs, {_list_seconds():.3f} s beside {listed()}")
    bench.service.kill(experiment_id)


def _list_seconds() -> float:
    words = [sys.executable, "-m", "determined.cli", "experiment", "list"]
    took = [
        _seconds(lambda: subprocess.run(words, check=True, capture_output=True)) for _ in "1234567"
    ]
    return statistics.median(took)


def _seconds(function) -> float:  # type: ignore[no-untyped-def]  # whatever it returns
    begin = time.monotonic()
    function()
    return time.monotonic() - begin


if __name__ == "__main__":
    main()
