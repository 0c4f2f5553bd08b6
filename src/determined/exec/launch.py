"""Run the entrypoint of the experiment that this process is part of.

    python -m determined.exec.launch

Runs it as a child, passes signals on to it, and leaves with its exit code. A keeper does the same
for the runs of this platform without a process in between; this is for other ways to start them.
"""

from __future__ import annotations

import subprocess
import sys

from determined._info import get_cluster_info
from determined._legacy.experiment_config import ExperimentConfig
from determined.launch.wrap_rank import forwarding
from determined.platform.runs.entrypoint import command_for


def main() -> int:
    info = get_cluster_info()
    if info is None or info.task_type != "TRIAL":
        sys.stderr.write(
            "determined.exec.launch needs the platform's description of a trial, which is "
            "missing here: DET_INFO_DIR names no folder with a cluster.json.\n"
        )
        return 1
    entrypoint = ExperimentConfig(info.trial._config).get_entrypoint()
    return run(command_for(entrypoint, sys.executable))


def run(command: tuple[str, ...]) -> int:
    """Run a command to its end and return its exit code, 128 + n after signal n."""
    try:
        process = subprocess.Popen(command)
    except OSError as error:
        sys.stderr.write(f"The entrypoint could not be started: {command[0]}: {error.strerror}.\n")
        return 127 if isinstance(error, FileNotFoundError) else 126
    with forwarding(process.send_signal):
        status = process.wait()
    return status if status >= 0 else 128 - status


if __name__ == "__main__":
    sys.exit(main())
