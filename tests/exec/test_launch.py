"""The entrypoint of a trial, started by hand in its environment."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.multiprocess

_COMMAND = [sys.executable, "-m", "determined.exec.launch"]


def describe(folder: Path, entrypoint: Any) -> dict[str, str]:
    cluster = {
        **{"master_url": "", "cluster_id": "c", "agent_id": "a", "slot_ids": [], "task_id": "1.r"},
        **{"allocation_id": "1.r.1", "session_token": "", "task_type": "TRIAL"},
    }
    trial = {
        **{"trial_id": 1, "experiment_id": 1, "trial_seed": 0, "hparams": {}, "debug": False},
        **{"config": {"entrypoint": entrypoint}, "steps_completed": 0, "trial_run_id": 1},
    }
    (folder / "cluster.json").write_text(json.dumps(cluster))
    (folder / "trial.json").write_text(json.dumps(trial))
    return {**os.environ, "DET_INFO_DIR": str(folder)}


@pytest.mark.parametrize(
    ("entrypoint", "output", "code"),
    [
        (["echo", "a  b"], "a  b\n", 0),
        ("echo a  b; exit 7", "a b\n", 7),
        ("kill -9 $$", "", 137),
        (["no-such-program"], "", 127),
    ],
)
def test_the_exit_code_is_the_entrypoints(
    entrypoint: Any, output: str, code: int, tmp_path: Path
) -> None:
    answer = subprocess.run(
        _COMMAND, env=describe(tmp_path, entrypoint), capture_output=True, text=True, timeout=60
    )
    assert (answer.stdout, answer.returncode) == (output, code)


def test_signals_are_passed_on(tmp_path: Path) -> None:
    script = "import signal; print('up', flush=True); print(signal.sigwait([signal.SIGUSR1]))"
    block = f"import signal; signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1]); {script}"
    process = subprocess.Popen(
        _COMMAND,
        env=describe(tmp_path, [sys.executable, "-c", block]),
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    process.send_signal(signal.SIGUSR1)
    assert process.stdout.read() == "10\n"
    assert process.wait(60) == 0
    process.stdout.close()


def test_without_a_trial_there_is_nothing_to_launch(tmp_path: Path) -> None:
    environment = {**os.environ, "DET_INFO_DIR": str(tmp_path)}
    answer = subprocess.run(_COMMAND, env=environment, capture_output=True, text=True, timeout=60)
    assert answer.returncode == 1
    assert "needs the platform's description of a trial" in answer.stderr
    assert "Traceback" not in answer.stderr
