"""`python -m tests.accelerator PYTEST_ARGUMENTS...`: run tests on the simulated accelerator."""

import os
import sys

from tests import accelerator

if __name__ == "__main__":
    command = [sys.executable, "-m", "pytest", *sys.argv[1:]]
    os.execve(sys.executable, command, accelerator.environment())
