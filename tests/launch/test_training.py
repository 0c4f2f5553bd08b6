"""Each way to start a script on two ranks trains it, and leaves nothing behind."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.terminal import run_file
from tests.support.workers import collect_workers

pytestmark = [pytest.mark.multiprocess, pytest.mark.slow]

DEADLINE_SECONDS = 90
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
LAUNCHER = [sys.executable, "-m", "determined.launch.torch_distributed"]
TWO = ["--nproc_per_node", "2"]

_SCRIPT = """
import torch.distributed as dist
from determined import core, pytorch
from tests.support.ranked import NetTrial
{before}
with pytorch.init(seed=1, hparams={{"global_batch_size": 8}}, {arguments}) as context:
    trial = NetTrial(context)
    trainer = pytorch.Trainer(trial, context)
    trainer.fit(max_length=pytorch.Batch(3), checkpoint_policy="none")
    word = "distributed" if type(trial.model).__name__ == "_DDP" else "alone"
    # In one piece each: launchers run Python unbuffered, and the lines of two ranks would mix.
    rank = context.distributed.rank
    print(f"rank {{rank}} {{word}} {{trial.digests[-1]}}\\n", end="", flush=True)
    print(f"saved {{trainer.latest_checkpoint}}\\n", end="", flush=True)
print(f"group {{dist.is_initialized()}}\\n", end="", flush=True)
"""
_RECIPE = """
dist.init_process_group("gloo")
import os
os.environ["USE_TORCH_DISTRIBUTED"] = "true"
"""


def _launch(directory: Path, command: list[str]) -> str:
    done = subprocess.run(
        [*command, str(_write_script(directory))],
        cwd=directory,
        env={
            **os.environ,
            "DET_PROGRESS": "off",
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": str(Path(__file__).parents[2]),
        },
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def _write_script(directory: Path, before: str = "", arguments: str = "") -> Path:
    script = directory / "train.py"
    script.write_text(_SCRIPT.format(before=before, arguments=arguments))
    return script


def _ranks(output: str) -> dict[str, str]:
    """Return the weights that each distributed rank printed."""
    lines = [line.split("rank ", 1)[1].split() for line in output.splitlines() if " distr" in line]
    return {rank: digest for rank, _, digest in lines}


@pytest.mark.parametrize("command", [[*TORCHRUN, *TWO], [*LAUNCHER, *TWO, "--"]])
def test_ranks_start_and_end_their_group_by_themselves(tmp_path: Path, command: list[str]) -> None:
    output = _launch(tmp_path, command)
    ranks = _ranks(output)
    assert ranks.keys() == {"0", "1"}
    assert ranks["0"] == ranks["1"]
    assert output.count("group False") == 2
    saved = [line.split("saved ")[1] for line in output.splitlines() if "saved" in line]
    assert saved[0] == saved[1]
    assert Path(saved[0], "state_dict.pth").is_file()


def test_a_group_that_the_script_made_is_used_and_left_alone(tmp_path: Path) -> None:
    script = _write_script(
        tmp_path,
        before=_RECIPE,
        arguments="distributed=core.DistributedContext.from_torch_distributed()",
    )
    # Forks that find the variables of torchrun, and torch loaded.
    environment = {"DET_PROGRESS": "off"}
    found = collect_workers(
        2, run_file, script, process_group=False, environment=environment, deadline_seconds=60
    )
    assert [outcome.exit_code for outcome in found] == [0, 0], found
    output = "".join(outcome.output for outcome in found)
    assert _ranks(output).keys() == {"0", "1"}
    assert output.count("group True") == 2


def test_without_options_the_launcher_trains_on_one_rank(tmp_path: Path) -> None:
    output = _launch(tmp_path, [*LAUNCHER, "--"])
    assert "[rank=0] rank 0 alone" in output
