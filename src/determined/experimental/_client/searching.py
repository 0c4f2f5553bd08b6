"""Search from Python: a function or trial class of a script or notebook, as an experiment."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from determined._code.shipped_target import name_of, takes_context
from determined.errors import DeterminedError

if TYPE_CHECKING:
    from determined.experimental._client.experiment import Experiment
    from determined.experimental._client.trial import Trial

_LAUNCHER = ["python3", "-m", "determined.launch.torch_distributed"]
_MOST_LINES = 30  # of a traceback


def search_config(
    target: Callable[..., Any],
    space: Mapping[str, Any],
    searcher: Mapping[str, Any],
    config: Mapping[str, Any],
    import_root: str,
) -> dict[str, Any]:
    """Return the configuration of a search; `config` is the user's, and has precedence."""
    taken = [key for key in ("entrypoint", "hyperparameters", "searcher") if key in config]
    if taken:
        raise ValueError(
            f"`config` must not have {taken[0]!r}: it is made from the other arguments."
        )
    command = ["python3", "-m", "determined.exec.target", import_root]
    if isinstance(target, type):
        command = [*_LAUNCHER, "--", *command]
    # A function that raises would raise again.
    defaults = {} if isinstance(target, type) else {"max_restarts": 0}
    return {
        "name": name_of(target),
        **defaults,
        **config,
        "entrypoint": command,
        "hyperparameters": dict(space),
        "searcher": dict(searcher),
    }


def check_target(target: Callable[..., Any], searcher: Mapping[str, Any]) -> None:
    """Raise ValueError if trials could not run the target."""
    if isinstance(target, type):
        bases = {f"{base.__module__}.{base.__qualname__}" for base in target.__mro__}
        if not any(base.startswith("determined.pytorch.") for base in bases):
            raise ValueError(
                f"`target` must be a function, or a subclass of determined.pytorch.PyTorchTrial, "
                f"got the class {target.__qualname__}."
            )
        if searcher.get("max_length") is None and searcher.get("max_time") is None:
            raise ValueError(
                "`max_length` must say how long to train a trial class, such as {'epochs': 3}."
            )
        return
    if not callable(target):
        raise ValueError(f"`target` must be a function or a trial class, got {target!r}.")
    takes_context(target)


def announce(experiment: Experiment) -> None:
    """Say how to find a search again if this process should end before it."""
    sys.stderr.write(
        f"Experiment {experiment.id} runs on whatever becomes of this process; find it again with "
        f"client.get_experiment({experiment.id}) or `det experiment describe {experiment.id}`.\n"
    )


def await_results(experiment: Experiment, progress: bool | None) -> None:
    """Wait for the end of a search, and show the errors of its trials.

    Raises DeterminedError, with the traceback of a trial, if none has a result.
    """
    paused: ValueError | None = None
    try:
        experiment.wait(progress=progress)
    except ValueError as error:  # by a user, or by itself because all trials fail
        paused = error
        experiment.reload()
    failed = [trial for trial in experiment.iter_trials() if trial.state.name == "ERROR"]
    if not failed:
        if paused is not None:
            raise paused
        return
    words = _about_failures(experiment, failed)
    if experiment.best_trial_id is None:
        if paused is not None:  # its function is what it is: to go on would not help
            experiment.cancel()
        raise DeterminedError(f"Experiment {experiment.id} has no result: {words}")
    sys.stderr.write(f"{words}\n")
    if paused is not None:
        raise paused


def _about_failures(experiment: Experiment, failed: list[Trial]) -> str:
    from determined.platform.queries.outcome import last_log_lines

    last = failed[-1]
    lines = last_log_lines(experiment._session.service.reader, last._record, _MOST_LINES)
    words = f"{len(failed)} of {experiment.num_trials} trials failed, the last one (trial {last.id}"
    return f"{words}, {last.hparams}) with:\n\n" + "\n".join(lines)


def stage(target: Callable[..., Any], folder: str) -> tuple[Path, str]:
    """Put a target and its code into a folder; return that of the code, and where imports begin."""
    from determined._code.shipped_target import ship_target

    code = Path(folder) / "code"
    return code, ship_target(target, code)
