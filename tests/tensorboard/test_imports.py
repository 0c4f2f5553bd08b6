from __future__ import annotations

import subprocess
import sys


def test_importing_the_package_loads_nothing_heavy() -> None:
    script = (
        "import sys, determined.tensorboard, determined.tensorboard.metric_writers;"
        "print(*{'torch', 'numpy', 'tensorboard', 'google.protobuf'} & set(sys.modules))"
    )
    result = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60
    )
    assert result.stdout.split() == []
