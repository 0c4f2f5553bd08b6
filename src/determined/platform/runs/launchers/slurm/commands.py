"""Slurm's commands. An unanswered question says nothing about jobs: it is asked again."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Sequence

from determined.errors import DeterminedError

_SECONDS = 60.0
_UNANSWERED = re.compile(
    r"contact slurm|timed out|zero bytes|standby|temporarily|connection (refused|reset)|"
    r"connect failure|transport endpoint|authentication|munge|communication|"
    r"MaxSubmit|submit limit",  # jobs that end count until Slurm has cleaned up after them
    re.IGNORECASE,
)
# What a job inherits; its own variables travel in a private file.
_PASSED_ON = re.compile(
    r"PATH|HOME|USER|LOGNAME|SHELL|LANG|LC_\w+|TZ|TMPDIR|SLURM_CONF|SLURM_CLUSTERS|MODULE\w*|LMOD_\w+|"
    r"SBATCH_(ACCOUNT|PARTITION|QOS|RESERVATION|CONSTRAINT|CLUSTERS|TIMELIMIT)"
)


class SlurmUnansweredError(DeterminedError):
    """Slurm did not answer, or asks to come back; what was asked for may have happened."""


class SlurmRefusedError(DeterminedError):
    """Slurm said no."""


def call(argv: Sequence[str], standard_input: str = "", seconds: float = _SECONDS) -> str:
    """Run one of Slurm's commands and return what it printed."""
    environment = {n: value for n, value in os.environ.items() if _PASSED_ON.fullmatch(n)}
    try:
        done = subprocess.run(
            list(argv),
            input=standard_input,
            env=environment,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=seconds,
            check=False,
        )
    except FileNotFoundError:
        raise SlurmUnansweredError(
            f"`{argv[0]}` is not installed here: jobs can be submitted only where Slurm's commands "
            "are, such as on a login node."
        ) from None
    except subprocess.TimeoutExpired:
        raise SlurmUnansweredError(f"{argv[0]} did not answer within {seconds:.0f} s.") from None
    if done.returncode:
        said = " ".join(done.stderr.split()) or f"status {done.returncode}"
        said = said.removeprefix(f"{argv[0]}: error: ")
        if _UNANSWERED.search(said):
            raise SlurmUnansweredError(f"{argv[0]}: {said}")
        raise SlurmRefusedError(f"{argv[0]}: {said}")
    return done.stdout
