"""Who is ended at logout, by the words of logind's files. No systemd was run for this."""

from __future__ import annotations

import pytest

from determined.platform.machines.logind import kills_processes

_SESSION = "0::/user.slice/user-1000.slice/session-3.scope\n"
_SERVICE = "0::/user.slice/user-1000.slice/user@1000.service/app.slice/run-1.scope\n"
_YES = "[Login]\nKillUserProcesses=yes\n"


@pytest.mark.parametrize(
    ("texts", "cgroup", "user", "expected"),
    [
        ([], _SESSION, "me", False),
        (["[Login]\n#KillUserProcesses=yes\n"], _SESSION, "me", False),
        ([_YES], _SESSION, "me", True),
        ([_YES], _SERVICE, "me", False),
        ([_YES], _SESSION, "root", False),
        ([_YES, "KillExcludeUsers=root me\n"], _SESSION, "me", False),
        ([_YES, "KillOnlyUsers=you\n"], _SESSION, "me", False),
        ([_YES, "KillOnlyUsers=me\n"], _SESSION, "me", True),
        ([_YES, "KillUserProcesses = no\n"], _SESSION, "me", False),
        (["KillUserProcesses=no\n", _YES], _SESSION, "me", True),
        ([_YES], "12:pids:/user.slice\n1:name=systemd:/user.slice/session-c1.scope\n", "me", True),
    ],
)
def test_the_last_word_and_the_scope_decide(
    texts: list[str], cgroup: str, user: str, expected: bool
) -> None:
    assert kills_processes(texts, cgroup, user) is expected
