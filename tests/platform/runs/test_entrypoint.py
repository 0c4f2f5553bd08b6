"""From `entrypoint` to a command."""

from __future__ import annotations

from typing import Any

import pytest

from determined.platform.runs.entrypoint import command_for, script_of
from determined.platform.runs.folder import CONFIGURATION_MARK, LogPolicy
from determined.platform.runs.keeper._policies import Policies

_LAUNCHER = ("/py", "-m", "determined.launch.torch_distributed", "--", "--trial")


@pytest.mark.parametrize(
    ("entrypoint", "command"),
    [
        (["python3", "train.py", "--lr", "a b"], ("python3", "train.py", "--lr", "a b")),
        ("python3 train.py --lr 1", ("sh", "-c", "python3 train.py --lr 1")),
        ("model_def:Trial", (*_LAUNCHER, "model_def:Trial")),
        (" model_def:Trial\n", (*_LAUNCHER, "model_def:Trial")),
        ("pkg.model_def:Outer.Trial", (*_LAUNCHER, "pkg.model_def:Outer.Trial")),
        ("run:it now", ("sh", "-c", "run:it now")),
    ],
)
def test_each_form_has_its_command(entrypoint: Any, command: tuple[str, ...]) -> None:
    assert command_for(entrypoint, "/py") == command


@pytest.mark.parametrize("entrypoint", [None, 3, {"a": 1}, [], ["python3", 3]])
def test_anything_else_is_refused(entrypoint: Any) -> None:
    with pytest.raises(ValueError, match="entrypoint: expected a command as a string or a list"):
        command_for(entrypoint, "/py")


def test_no_policy_applies_to_the_line_that_shows_the_configuration() -> None:
    policies = Policies((LogPolicy("oom", "out of memory"),), lambda text: None)
    line = f'{CONFIGURATION_MARK}{{"pattern": "out of memory"}}'
    assert not policies.search(f"INFO: {line}\n".encode())
    assert policies.search(b"out of memory\n")


@pytest.mark.parametrize(
    ("entrypoint", "script"),
    [
        ("python3 train.py --lr 0.1", "train.py"),
        ("python -u src/train.py", "src/train.py"),
        ("/usr/bin/python3.11 'my train.py'", "my train.py"),
        (["python3", "train.py"], "train.py"),
        ("python3 -m determined.launch.torch_distributed train.py", None),
        ("python3 /opt/train.py", None),
        ("python3 ../train.py", None),
        ("cd sub && python3 train.py", None),
        ("python3 $SCRIPT.py", None),
        ("./run.sh", None),
        ("model:Trial", None),
        ("python3 'train.py", None),
        ("python3", None),
    ],
)
def test_a_plain_command_names_its_script(entrypoint: Any, script: str | None) -> None:
    assert script_of(entrypoint) == script
