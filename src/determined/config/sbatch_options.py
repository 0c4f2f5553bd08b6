"""Which options of `sbatch` users may give, and why not the others. Pure; standard library only."""

from __future__ import annotations

import re

_OWNED = {
    "nodes": "follows from resources.slots_per_trial and slurm.slots_per_node",
    "ntasks": "there is one task per node",
    "ntasks-per-node": "there is one task per node",
    "ntasks-per-gpu": "there is one task per node",
    "ntasks-per-core": "there is one task per node",
    "ntasks-per-socket": "there is one task per node",
    "cpus-per-task": "follows from resources.slots_per_trial; with GPUs, use --cpus-per-gpu",
    "gpus": "follows from resources.slots_per_trial",
    "gpus-per-node": "follows from resources.slots_per_trial",
    "gpus-per-task": "follows from resources.slots_per_trial",
    "gpus-per-socket": "follows from resources.slots_per_trial",
    "array": "each trial is a job of its own",
    "job-name": "jobs are found again by their names",
    "output": "logs are kept with the run: `det trial logs`",
    "error": "logs are kept with the run: `det trial logs`",
    "open-mode": "logs are kept with the run: `det trial logs`",
    "input": "the job's script comes from standard input",
    "chdir": "trials run in a copy of the experiment's code",
    "export": "variables are recorded with the experiment: environment.environment_variables",
    "export-file": "variables are recorded with the experiment: environment.environment_variables",
    "get-user-env": "variables are recorded with the experiment",
    "parsable": "the job's id is read by the supervisor",
    "quiet": "the job's id is read by the supervisor",
    "test-only": "nothing would run",
    "wait": "the supervisor waits by itself",
    "wrap": "the job's script is ours",
    "requeue": "trials continue from their checkpoints in new jobs",
    "no-requeue": "it is always given",
    "signal": "it is used to end trials in time for their checkpoint",
    "nice": "it follows from resources.priority",
    "help": "nothing would run",
    "usage": "nothing would run",
    "version": "nothing would run",
}
_SHORT = {
    **{"N": "nodes", "n": "ntasks", "c": "cpus-per-task", "G": "gpus", "a": "array"},
    **{"J": "job-name", "o": "output", "e": "error", "i": "input", "D": "chdir"},
    **{"Q": "quiet", "W": "wait", "h": "help", "V": "version"},
}
_SHORT_FLAGS = "HIkOsuv"
_OPTION = re.compile(r"--([a-z][a-z0-9-]*)(=.*)?|-([A-Za-z])(.*)", re.DOTALL)


def refusal(word: object) -> str:
    """Why an element of `sbatch_args` is refused; "" if it is not."""
    if not isinstance(word, str):
        return f"expected text such as --time=12:00:00, got {word!r}"
    found = _OPTION.fullmatch(word)
    if found is None or not word.isprintable():
        return f"expected one option per element, such as --time=12:00:00, got {word!r}"
    name, _, letter, rest = found.groups()
    if letter in tuple(_SHORT_FLAGS) and rest:
        return f"give {word!r} as separate elements, one option each"
    name = name or _SHORT.get(letter, "")
    if name == "gres" and "gpu" in word:
        return f"{word} cannot be given: GPUs follow from resources.slots_per_trial"
    # `sbatch` accepts the beginning of a name, too.
    owned = next((o for o in _OWNED if o == name), None) or next(
        (o for o in _OWNED if name and o.startswith(name)), None
    )
    return "" if owned is None else f"{word.partition('=')[0]} cannot be given: {_OWNED[owned]}"
