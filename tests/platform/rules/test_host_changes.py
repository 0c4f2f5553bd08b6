"""Which lines of a startup hook change the machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from determined.platform.rules.host_changes import COMMANDS, host_changes


@pytest.mark.parametrize(
    ("line", "command"),
    [
        ("apt-get update", "apt-get"),
        ("apt-get update && apt-get install -y git", "apt-get"),
        ("  sudo pip install x", "sudo"),
        ("DEBIAN_FRONTEND=noninteractive apt install -y git", "apt"),
        ("if ! command -v git; then apk add git; fi", "apk"),
        ("pip install a; /usr/bin/dpkg -i b.deb", "dpkg"),
        ("x=$(conda info)", "conda"),
        ("(yum -y install git)", "yum"),
        ("nohup systemctl start x &", "systemctl"),
    ],
)
def test_a_command_that_changes_the_machine_is_found(line: str, command: str) -> None:
    (found,) = host_changes(f"set -e\n{line}\npip install x\n")
    assert found == (2, line.strip(), command)


@pytest.mark.parametrize(
    "line",
    [
        "pip install apt",
        "# apt-get update",
        "echo 'apt-get is not here'",
        'echo "conda install x"',
        "export apt=1",
        "python -m conda_pack",
        "cd service && pip install .",
        "./apt.sh",
        "git clone x mount",
        "pip install -r requirements.txt  # apt-get would do too",
        "",
    ],
)
def test_everything_else_is_left_alone(line: str) -> None:
    assert host_changes(line) == []


def test_the_list_is_documented() -> None:
    page = (Path(__file__).parents[3] / "docs" / "security.md").read_text().replace("\n", " ")
    text = " ".join(page.split())
    assert f"{', '.join(COMMANDS)}. What a script" in text
