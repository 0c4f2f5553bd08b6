"""The arguments and the script of a job. Pure."""

from __future__ import annotations

import math
import shlex

from determined.errors import DeterminedError
from determined.platform.machines.slurm import SlurmSettings, SlurmTable
from determined.platform.rules.scheduler import DEFAULT_PRIORITY
from determined.platform.runs.job_order import JobOrder

_LONGEST_WARNING_SECONDS = 120
_SHORTEST_WARNING_SECONDS = 15
_NICE_PER_PRIORITY = 100
_NODE_MODULE = "determined.platform.runs.launchers.slurm.node"


def count_nodes(order: JobOrder, settings: SlurmSettings, table: SlurmTable) -> int:
    """How many nodes a run needs, with the same number of slots on each."""
    if order.slots <= 1:
        return 1
    most = order.slots_per_node or settings.slots_per_node
    if most is None:
        partition = table.partition(partition_of(order, settings, table))
        most = 1 if partition is None else (partition.gpus if table.has_gpus else partition.cpus)
    nodes = math.ceil(order.slots / max(1, most))
    if order.slots % nodes:
        fitting = [n for n in range(nodes, order.slots + 1) if order.slots % n == 0]
        nodes = fitting[0]
    return nodes


def partition_of(order: JobOrder, settings: SlurmSettings, table: SlurmTable) -> str:
    """The partition: the experiment's resource pool if there is one of that name."""
    return order.pool if order.pool and table.partition(order.pool) else settings.partition


def arguments(
    name: str, output: str, order: JobOrder, settings: SlurmSettings, table: SlurmTable
) -> list[str]:
    """The arguments of `sbatch`; the user's come last, so they count."""
    nodes = count_nodes(order, settings, table)
    slots = max(1, order.slots // nodes)
    warning = _warning_seconds([*settings.sbatch_args, *order.sbatch_args], settings)
    given = [
        f"--job-name={name}",
        f"--output={output}",
        "--open-mode=append",
        "--chdir=/",
        "--no-requeue",
        f"--nodes={nodes}",
        "--ntasks-per-node=1",
        f"--signal=B:TERM@{warning}",
    ]
    if table.has_gpus and order.slots:
        kind = f"{order.gpu_type}:" if order.gpu_type else ""
        given.append(f"--gpus-per-node={kind}{slots}")
    else:
        given.append(f"--cpus-per-task={slots}")
    partition = partition_of(order, settings, table)
    for option, value in (
        ("partition", partition),
        ("account", settings.account),
        ("qos", settings.qos),
        ("time", settings.time_limit),
    ):
        if value:
            given.append(f"--{option}={value}")
    if order.priority > DEFAULT_PRIORITY:  # only an operator may ask for less than 0
        given.append(f"--nice={(order.priority - DEFAULT_PRIORITY) * _NICE_PER_PRIORITY}")
    return [*given, *settings.sbatch_args, *order.sbatch_args]


def script(folder: str, interpreter: str, settings: SlurmSettings) -> str:
    """The script of a job. It takes the run first: a run that was submitted twice starts once."""
    lines = [
        "#!/bin/bash -l" if settings.modules else "#!/bin/bash",
        f"folder={shlex.quote(folder)}",
        f"python={shlex.quote(interpreter)}",
        "node=${SLURMD_NODENAME:-$(hostname)}",
        'problem() { printf "%s\\n" "$1" > "$folder/problem"; exit 1; }',
        'if ! (set -C; printf "%s" "$SLURM_JOB_ID" > "$folder/taken") 2>/dev/null; then',
        '  [ -e "$folder/taken" ] && exit 0  # by another job, or by this one before a restart',
        '  echo "node $node cannot write in $folder" >&2',
        "  exit 1",
        "fi",
    ]
    if settings.modules or settings.prolog:
        lines.append('env -0 > "$folder/before"')
    for module in settings.modules:
        lines.append(
            f'module load {shlex.quote(module)} || problem "node $node: module {module} cannot be '
            'loaded: correct cluster.modules in platform.yaml"'
        )
    if settings.prolog:
        lines.append(settings.prolog)
    lines += [
        '[ -x "$python" ] || problem "node $node has no Python at $python: install the '
        "experiment's environment there under the same path, or on a shared file system\"",
        f'exec "$python" -m {_NODE_MODULE} "$folder"',
        "",
    ]
    return "\n".join(lines)


def _warning_seconds(words: list[str], settings: SlurmSettings) -> int:
    """How long before its time limit a job gets SIGTERM."""
    limit = settings.time_limit
    for word in words:
        name, _, value = word.partition("=")
        if name in ("--time", "--tim", "--ti"):
            limit = value
        elif word.startswith("-t") and not word.startswith("--"):
            limit = word[2:]
    seconds = limit_seconds(limit)
    if seconds is None:
        return _LONGEST_WARNING_SECONDS
    return max(_SHORTEST_WARNING_SECONDS, min(_LONGEST_WARNING_SECONDS, seconds // 4))


def limit_seconds(text: str) -> int | None:
    """The seconds of a time limit as Slurm writes it; None without one."""
    days, dash, rest = text.rpartition("-")
    try:
        numbers = [int(word) for word in rest.split(":")]
        if dash:
            hours, minutes, seconds = (numbers + [0, 0])[:3]
            return ((int(days) * 24 + hours) * 60 + minutes) * 60 + seconds
        if len(numbers) == 3:
            return (numbers[0] * 60 + numbers[1]) * 60 + numbers[2]
        return numbers[0] * 60 + (numbers[1] if len(numbers) > 1 else 0)
    except ValueError:
        return None


def check_slots(order: JobOrder, settings: SlurmSettings, table: SlurmTable) -> None:
    """Refuse a trial whose slots cannot be divided over nodes as configured."""
    most = order.slots_per_node or settings.slots_per_node
    nodes = count_nodes(order, settings, table)
    if most and order.slots > most and order.slots // nodes != most:
        raise DeterminedError(
            f"resources.slots_per_trial is {order.slots}, slots_per_node {most}: each node gets "
            f"the same number of slots. Use a multiple of {most}."
        )
