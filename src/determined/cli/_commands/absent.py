"""Commands of the original that have no meaning here: each says why, and what to use instead."""

from __future__ import annotations

import click


class Absent(click.Command):
    """A command that takes any arguments and prints one line."""

    def __init__(self, name: str, reason: str) -> None:
        self.reason = reason
        super().__init__(
            name,
            callback=self._tell,
            params=[click.Argument(["words"], nargs=-1, type=click.UNPROCESSED)],
            context_settings={"ignore_unknown_options": True, "help_option_names": []},
            help=reason,
            hidden=True,
        )

    def _tell(self, words: tuple[str, ...]) -> None:
        raise click.ClickException(self.reason)


_ONE_USER = "There is only one user, you: anyone who can read DET_HOME can use what is in it."
_OWN_TERMINAL = "There is no cluster to start it on: run it in your own terminal."
_NOUNS = {
    "agent": "There are no agents: trials run on this machine. `det slot list` shows its slots.",
    "auth": _ONE_USER,
    "config-policies": "There are no policies: a template has defaults, `det experiment create "
    "--template FILE`.",
    "command": f"{_OWN_TERMINAL} `det experiment create` runs commands that need slots and a log.",
    "deploy": "There is nothing to deploy: the first `det experiment create` starts what it needs.",
    "dev": "There is no server to query: most commands print data with --json.",
    "master": "There is no master: `det supervisor status` and `det supervisor logs` show the "
    "process that runs experiments.",
    "notebook": f"{_OWN_TERMINAL} `determined.experimental.client` works there as in scripts.",
    "oauth": _ONE_USER,
    "rbac": _ONE_USER,
    "resource-pool": "All slots of this machine are one pool: `det slot list` shows them.",
    "resources": "Slot usage is not accounted: `det experiment describe` shows the times.",
    "shell": f"{_OWN_TERMINAL} `det trial debug ID` runs a trial in it.",
    "task": "Trials are the only tasks: `det trial logs ID`, `det slot list`.",
    "template": "Templates are files: `det experiment create --template FILE` takes one.",
    "token": _ONE_USER,
    "user-group": _ONE_USER,
}
_ALIASES = {
    "a": "agent",
    "cmd": "command",
    "d": "deploy",
    "r": "resources",
    "rp": "resource-pool",
    "tpl": "template",
    "ug": "user-group",
}


def absent_nouns() -> dict[str, Absent]:
    """The nouns that have no meaning, by every name they had."""
    names = {name: name for name in _NOUNS} | _ALIASES
    return {name: Absent(name, _NOUNS[target]) for name, target in names.items()}


def absent(group: click.Group, reason: str, *names: str) -> None:
    """Add verbs that have no meaning to a group."""
    for name in names:
        group.add_command(Absent(name, reason))
