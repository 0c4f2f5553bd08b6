"""Which Python program a command runs, and whether it may start warm. Pure.

A warm process has read its environment, its options and its modules before it knows what it will
run. So it can only replace a command that would have started with the same ones; everything else is
a reason, in a sentence for the user, to start cold.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

# What a fork server has loaded, in its command.
WITH_TORCH, WITHOUT_TORCH = "torch", "light"

_SHELL_CHARACTERS = frozenset("$`|&;<>()*?[]{}~#!\\\n")
# Read on use, not when Python or torch is imported: what a run is told about itself, what its
# launcher adds, and what belongs to the terminal.
_READ_LATE_PREFIXES = ("DET_", "SSH_", "TMUX", "TORCHELASTIC_", "XDG_SESSION_")
_READ_LATE = frozenset(
    """
    CUDA_VISIBLE_DEVICES HIP_VISIBLE_DEVICES ROCR_VISIBLE_DEVICES
    C10D_PORT INTER_TRAIN_PROCESS_COMM_PORT_1 INTER_TRAIN_PROCESS_COMM_PORT_2
    USE_TORCH_DISTRIBUTED RANK LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE GROUP_RANK GROUP_WORLD_SIZE
    ROLE_RANK ROLE_NAME ROLE_WORLD_SIZE MASTER_ADDR MASTER_PORT TORCH_NCCL_ASYNC_ERROR_HANDLING
    TORCH_DISABLE_SHARE_RDZV_TCP_STORE GLOO_SOCKET_IFNAME
    PWD OLDPWD SHLVL _ TERM COLORTERM COLUMNS LINES DISPLAY WINDOWID STY
    """.split()  # noqa: SIM905  # twenty lines otherwise
)


class Program(NamedTuple):
    """`python SCRIPT ARGUMENTS` or `python -m MODULE ARGUMENTS`."""

    command: tuple[str, ...]  # the whole command
    target: str
    is_module: bool
    arguments: tuple[str, ...]
    through_shell: bool = False
    executable: str = ""  # the path of the first word, once looked up

    @property
    def interpreter(self) -> str:
        return self.executable or self.command[0]


class Cold(NamedTuple):
    """Why something starts cold. A reason that lasts is worth a line in the log."""

    reason: str
    lasts: bool = True


def find_program(argv: Sequence[str]) -> Program | Cold:
    """Return the program of a command, as given by an experiment's entrypoint."""
    command, through_shell = list(argv), False
    if len(argv) == 3 and tuple(argv[:2]) == ("sh", "-c"):
        if not _SHELL_CHARACTERS.isdisjoint(argv[2]):
            return Cold("its entrypoint needs a shell")
        try:
            command, through_shell = shlex.split(argv[2]), True
        except ValueError:
            return Cold("its entrypoint needs a shell")
    if not command or not command[0].rpartition("/")[2].startswith("python"):
        return Cold("its entrypoint is not a Python program")
    rest = command[1:]
    while rest and rest[0] == "-u":
        rest = rest[1:]
    is_module = rest[:1] == ["-m"]
    target = rest[1:] if is_module else rest
    if not target or target[0].startswith("-"):
        return Cold("its entrypoint gives Python options")
    return Program(tuple(command), target[0], is_module, tuple(target[1:]), through_shell)


def obstacle(
    program: Program,
    environment: Mapping[str, str],
    *,
    is_wanted: bool = True,
    is_own_interpreter: bool = True,
    has_startup_hook: bool = False,
) -> Cold | None:
    """Return what prevents a program from starting warm."""
    if not is_wanted:
        return Cold("environment.warm_start is false", lasts=False)
    if has_startup_hook:
        return Cold("a startup-hook.sh comes first")
    if not is_own_interpreter:
        return Cold("it uses a different interpreter than the supervisor")
    if "-u" in program.command[1:2] and not environment.get("PYTHONUNBUFFERED"):
        return Cold("its entrypoint gives Python options")
    folders = environment.get("PYTHONPATH", "")
    if folders and any(not folder.startswith("/") for folder in folders.split(":")):
        return Cold("PYTHONPATH names a relative folder")
    return None


def import_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that Python, torch or a library may read while it is imported.

    All except those that are known to be read later: an unknown variable counts.
    """
    return {
        name: value
        for name, value in environment.items()
        if name not in _READ_LATE and not name.startswith(_READ_LATE_PREFIXES)
    }


def shadowed(names: Collection[str], loaded: Collection[str]) -> Cold | None:
    """Return why code with modules of these names cannot start with other ones loaded."""
    clashes = sorted(set(names).intersection(loaded))
    if not clashes:
        return None
    return Cold(f"its own module {clashes[0]} has the same name as one that is already loaded")


def to_message(program: Program) -> dict[str, Any]:
    return program._asdict()


def from_message(message: Mapping[str, Any]) -> Program:
    command, arguments = tuple(message["command"]), tuple(message["arguments"])
    return Program(**{**message, "command": command, "arguments": arguments})
