"""The page that tells, for every command of the original, what it does here.

The names are facts about the original (version 0.38); the rest comes from the real command tree.
`python -m tools.original_commands` writes the page; a test compares.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import click

from determined.cli._commands.absent import Absent
from tools.command_tree import find

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "original_commands.md"
_HEAD = """# Commands of Determined

Every command of Determined's command line, and what it does here. Commands that manage a cluster
have no meaning on one machine: they print the sentence in this table and exit with 1. The
[reference](commands.md) has the commands that are new.

Differences: `delete` returns when the deletion is done; `logs` of an experiment shows all of its
trials; times are local unless you pass `--utc`; most commands on experiments take several ids,
`3,4,8`.
"""

# Words after the noun; `-` stands for the noun alone.
ORIGINAL = {
    "experiment": "create list describe config logs list-trials list-checkpoints "
    "download-model-def download pause activate cancel kill archive unarchive continue delete wait "
    "move delete-tb-files label.add label.remove set.description set.name set.max-slots "
    "set.priority set.weight set.gc-policy set.log-retention",
    "trial": "describe logs download kill support-bundle set.log-retention",
    "checkpoint": "describe download delete rm",
    "preview-search": "-",
    "tensorboard": "start list open kill logs config set",
    "model": "create list describe list-versions register-version move delete",
    "workspace": "list list-projects create describe edit delete archive unarchive list-members "
    "list-pools bindings resource-quota",
    "project": "list list-experiments create describe edit delete archive unarchive",
    "job": "list update update-batch",
    "slot": "list enable disable",
    "user": "login logout whoami list create activate deactivate change-password "
    "link-with-agent-user rename edit",
    "version": "-",
    "agent": "-",
    "auth": "-",
    "command": "-",
    "config-policies": "-",
    "deploy": "-",
    "dev": "-",
    "master": "-",
    "notebook": "-",
    "oauth": "-",
    "rbac": "-",
    "resource-pool": "-",
    "resources": "-",
    "shell": "-",
    "task": "-",
    "template": "-",
    "token": "-",
    "user-group": "-",
}

_PAGES = "--limit --offset --pages"
_ORDER = f"--sort-by --order-by --json {_PAGES}"
_LOGS = "-f --follow --head --tail --rank-id --timestamp-before --timestamp-after --level --json"
_OF_WORKSPACES = (
    "--agent-uid --agent-gid --agent-user --agent-group --checkpoint-storage-config "
    "--checkpoint-storage-config-file --default-compute-pool --default-aux-pool --json"
)
_DOWNLOAD = "-o --output-dir --sort-by --smaller-is-better -q --quiet"

# The options that the original's commands took, besides --help.
OPTIONS = {
    "experiment list": f"-a --all --show_project --csv {_PAGES}",
    "experiment create": "-i --include --local --template --project_id -f --follow-first-trial "
    "--paused -t --test-mode --config -p --publish",
    "experiment continue": "--config-file --config -f --follow-first-trial",
    "experiment describe": "--metrics --csv --json --outdir",
    "experiment logs": _LOGS,
    "experiment delete": "--yes",
    "experiment download-model-def": "--output-dir",
    "experiment list-trials": f"--csv {_PAGES}",
    "experiment list-checkpoints": "--best --csv",
    "experiment download": f"--top-n {_DOWNLOAD}",
    "experiment wait": "--polling-interval",
    "experiment set gc-policy": "--save-experiment-best --save-trial-best --save-trial-latest "
    "--yes",
    "experiment set log-retention": "--days --forever",
    "trial describe": f"--metrics-summary --metrics --csv --json {_PAGES}",
    "trial logs": _LOGS,
    "trial download": f"--best --latest --uuid {_DOWNLOAD}",
    "trial support-bundle": "-o --output-dir",
    "trial set log-retention": "--days --forever",
    "checkpoint download": "-o --output-dir -q --quiet --mode",
    "checkpoint delete": "--yes",
    "checkpoint rm": "--glob --yes",
    "model create": "--description --json -w --workspace-name",
    "model list": "--sort-by --order-by --json -w --workspace-names",
    "model describe": "--json --version",
    "model list-versions": "--json",
    "model register-version": "--json",
    "model move": "-w --workspace-name",
    "workspace list": _ORDER,
    "workspace list-projects": _ORDER,
    "workspace create": f"--cluster-name --namespace --auto-create-namespace --resource-quota "
    f"{_OF_WORKSPACES}",
    "workspace edit": f"--name {_OF_WORKSPACES}",
    "workspace describe": "--json",
    "workspace delete": "--yes",
    "project list": _ORDER,
    "project list-experiments": f"-a --all {_ORDER}",
    "project create": "--description --key --json",
    "project edit": "--new_name --description --key --json",
    "project describe": "--json",
    "project delete": "--yes",
    "job list": f"-p --resource-pool --csv --json {_PAGES}",
    "job update": "--priority --weight --resource-pool --ahead-of --behind-of",
    "tensorboard start": "-t --trial-ids --config-file -c --context -i --include --config "
    "--no-browser -d --detach",
    "tensorboard list": "-q --quiet -a --all",
    "user list": "-a --all --csv --json",
    "user login": "-p --password",
    "user logout": "-a --all",
    "user create": "--admin --remote --password",
    "slot list": "--csv --json",
}


def unanswered(words: str, options: str) -> list[str]:
    """The options of a command that nobody answers to, or that its help does not name."""
    command = find(tuple(words.split()))
    if isinstance(command, Absent):
        return []  # it says what became of it, whatever follows
    shown = [p for p in command.params if isinstance(p, click.Option) and not p.hidden]
    known = {name for option in shown for name in option.opts}
    return [option for option in options.split() if option not in known]


def page() -> str:
    """Return the page; a command of the original that nobody answers to is an error."""
    rows = [f"| `det {words}` | {here} |" for words, here in _rows()]
    return "\n".join([_HEAD, "| original | here |", "|---|---|", *rows, ""])


def _rows() -> Iterator[tuple[str, str]]:
    """The commands, and what they do; those that give the same reason stand together."""
    for noun, verbs in ORIGINAL.items():
        found = [(_words(verb), find((noun, *_words(verb)))) for verb in verbs.split()]
        for what, alike in itertools.groupby(found, key=lambda pair: _what(pair[1])):
            words = [" ".join(rest) for rest, _ in alike]
            is_everything = what.startswith("*") and words == [""]
            yield f"{noun} {'...' if is_everything else ', '.join(words)}".rstrip(), what


def _words(verb: str) -> tuple[str, ...]:
    return () if verb == "-" else tuple(verb.split("."))


def _what(command: click.Command) -> str:
    text = " ".join((command.help or "").split("\n\n")[0].split()).replace("|", "\\|")
    assert text
    return f"*{text}*" if isinstance(command, Absent) else text


if __name__ == "__main__":
    PAGE.write_text(page())
