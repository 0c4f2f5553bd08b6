"""`det run`: a script in this terminal, warm."""

from __future__ import annotations

import os
import signal
import sys

import click


@click.command(
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)
@click.option(
    "-m", "is_module", is_flag=True, help="SCRIPT is the name of a module, as for Python."
)
@click.argument("script")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def run(is_module: bool, script: str, arguments: tuple[str, ...]) -> None:
    """Run a Python script without waiting for torch to be imported.

    `det run train.py --lr 0.1` does what `python train.py --lr 0.1` does, in this terminal and with
    its exit status. It starts in a copy of a process that has torch and this library loaded, so
    that only your own code takes time between an edit and the first batch.

    The first run in a terminal is an ordinary one; it starts that process, which exits after ten
    minutes without use (DET_WARM_IDLE_SECONDS). Runs that cannot start this way are ordinary ones,
    too: in another environment, with a module that shadows a loaded one, or on systems other than
    Linux.
    """
    from determined.platform.runs.warm.terminal import run as run_here

    status = run_here([*(("-m",) if is_module else ()), script, *arguments])
    if status < 0:  # end as it did
        number = -status
        if number not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
        status = 128 + number
    sys.stdout.flush()
    os._exit(status)
