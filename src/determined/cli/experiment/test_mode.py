"""What `det experiment create --test-mode` shows."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from determined.cli._commands.errors import ERROR, INTERRUPTED, OK, complain
from determined.cli._present.following import ProgressLine
from determined.cli._present.layout import printable

if TYPE_CHECKING:
    from determined.config import Loaded
    from determined.platform.debugging.test_mode import OneBatchRun, Verdict


def run_test(
    load_config: Callable[[], Loaded],
    model_dir: Path | None,
    includes: tuple[Path, ...],
    allow_host_changes: bool,
) -> int:
    """Try an experiment on one batch in a home of its own, and tell how it went."""
    from determined._contracts.home import HOME_VARIABLE
    from determined.platform.debugging.test_mode import OneBatchRun, shortened, temporary_home
    from determined.platform.service import Service

    began = time.monotonic()
    for number in (signal.SIGTERM, signal.SIGHUP):  # nothing is kept however we are ended
        signal.signal(number, signal.default_int_handler)
    try:
        with temporary_home() as home:
            os.environ[HOME_VARIABLE] = str(home.path)
            loaded = shortened(load_config().effective)
            service = Service(home)
            snapshot = service.take_snapshot(model_dir, includes)
            experiment_id = service.create(
                loaded, snapshot, model_dir, allow_host_changes=allow_host_changes
            )
            test = OneBatchRun(service, experiment_id)
            _show_stages(test)
            verdict = test.verdict()
            service.close()
    except KeyboardInterrupt:
        complain("interrupted: the test was stopped, and nothing was kept")
        return INTERRUPTED
    return _show(verdict, time.monotonic() - began)


def run_test_here(loaded: Loaded, model_dir: Path | None) -> int:
    """Try a trial class on one batch in this process, where breakpoints work."""
    from determined._legacy.entrypoint import is_trial_class
    from determined._legacy.local_execution import _local_execution_manager
    from determined.experimental._test_one_batch import test_one_batch
    from determined.load import trial_class_from_entrypoint

    entrypoint: Any = loaded.effective["entrypoint"]
    if not is_trial_class(entrypoint):
        raise click.ClickException(
            f"--local needs an entrypoint `module:Class`, got {entrypoint!r}. Without --local, "
            "--test-mode tries any entrypoint."
        )
    with _local_execution_manager((model_dir or Path()).absolute()):
        test_one_batch(trial_class_from_entrypoint(entrypoint), loaded.effective)  # type: ignore[arg-type]  # the harness trains PyTorch trials only
    click.echo(
        f"The test passed: {entrypoint} trained, validated and saved on one batch. Nothing was "
        "kept."
    )
    return OK


def _show_stages(test: OneBatchRun) -> None:
    line = ProgressLine()
    line.show("testing one batch ...")
    for stage in test.stages():
        line.clear()
        click.echo(f"{stage:<14} ok")
        line.show()
    line.clear()


def _show(verdict: Verdict, seconds: float) -> int:
    if verdict.failure:
        for line in verdict.last_lines:
            click.echo(f"    {printable(line)}")
        complain(f"the test failed: {printable(verdict.failure)}. Nothing was kept.")
        return ERROR
    for note in verdict.notes:
        click.echo(f"note: {printable(note)}", err=True)
    click.echo(f"The test passed: it {_deeds(verdict)} in {seconds:.0f} s. Nothing was kept.")
    return OK


def _deeds(verdict: Verdict) -> str:
    """What a trial did, as a sentence goes on after `it`."""
    count = "1 batch" if verdict.batches == 1 else f"{verdict.batches} batches"
    deeds = {
        "training": f"trained for {count}",
        "validation": "validated",
        "checkpointing": "saved",
    }
    done = [deeds[stage] for stage in verdict.reached if stage in deeds] or ["ran"]
    return done[0] if len(done) == 1 else f"{', '.join(done[:-1])} and {done[-1]}"
