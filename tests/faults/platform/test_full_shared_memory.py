"""/dev/shm, filled by a trial: the platform does without it, and the trial is told."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.multiprocess, pytest.mark.slow]

_FILLS = """
import os, sys
try:
    with open("/dev/shm/mine", "wb", buffering=0) as file:
        while True: file.write(bytes(4096))
except OSError as error:
    print("full:", error, flush=True)
from multiprocessing.shared_memory import SharedMemory
SharedMemory(create=True, size=1 << 20).buf[-1] = 1
"""
_REPORTS = """
from determined import core
with core.init() as context:
    context.train.report_validation_metrics(1, {"loss": 0.5})
"""
_ALL = """
set -eu
mount -t tmpfs -o size=256k tmpfs /dev/shm
det="$0 -m determined.cli"
$det e create fills.yaml .
$det e wait 1 || echo "the first failed"
test "$(df --output=avail /dev/shm | tail -1)" -eq 0
$det e create reports.yaml .
$det e wait 2 && echo "the second is completed"
$det e logs 1
$det supervisor stop
"""


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("unshare"), reason="mounts need root")
def test_all_goes_on_when_a_trial_has_filled_it(tmp_path: Path) -> None:
    code = tmp_path / "code"
    code.mkdir()
    for name, script in (("fills", _FILLS), ("reports", _REPORTS)):
        (code / f"{name}.py").write_text(script)
        (code / f"{name}.yaml").write_text(
            f"name: {name}\nentrypoint: python3 {name}.py\nmax_restarts: 0\n"
            "searcher: {name: single, metric: loss}\nresources: {slots_per_trial: 0}\n"
        )
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", _ALL, sys.executable],
        cwd=code,
        env={**os.environ, "DET_HOME": str(tmp_path / "home")},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "the first failed" in done.stdout
    assert "full: [Errno 28] No space left on device" in done.stdout
    assert "the second is completed" in done.stdout
