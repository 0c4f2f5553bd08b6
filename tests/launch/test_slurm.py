"""The lines for Slurm in the documentation, with the variables that Slurm sets on two nodes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.multiprocess, pytest.mark.slow]

_DOCS = Path(__file__).parents[2] / "docs" / "cluster.md"
_SRUN = """#!/bin/bash
[ "$1 $2" = "--ntasks-per-node 1" ] || exit 9
shift 2
SLURM_NODEID=0 "$@" & first=$!
SLURM_NODEID=1 "$@" || exit 1
wait $first
"""
_TRAIN = """
import os
from determined import core
with core.init(distributed=core.DistributedContext.from_torch_distributed()) as ctx:
    ranks = ctx.distributed.allgather(ctx.distributed.rank)
    print("machine", os.environ["SLURM_NODEID"], "sees", ranks, flush=True)
"""


def test_the_documented_lines_start_one_job_on_two_nodes(tmp_path: Path) -> None:
    (block,) = re.findall(r"```sh\n(export MASTER.*?)```", _DOCS.read_text(), re.DOTALL)
    scripts = {"srun": _SRUN, "scontrol": "#!/bin/sh\necho localhost\necho other\n"}
    for name, text in scripts.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    (tmp_path / "train.py").write_text(_TRAIN)
    path = f"{tmp_path}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "SLURM_NNODES": "2", "SLURM_JOB_NODELIST": "n[1-2]"}
    done = subprocess.run(
        ["bash", "-ec", block],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=110,
    )
    assert done.returncode == 0, done.stderr
    said = [line for line in done.stdout.splitlines() if "machine" in line]
    assert sorted(line.partition("] ")[2] for line in said) == [
        "machine 0 sees [0, 1]",
        "machine 1 sees [0, 1]",
    ]
