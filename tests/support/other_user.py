"""Another user of this machine: what somebody else can see and do of what we left there."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable
from typing import Any

import pytest

NOBODY = 65534


def as_other_user(deed: Callable[[], Any]) -> Any:
    """Return what a deed comes to in a process of another user; its result must be JSON.

    Skips the test where we cannot become somebody else.
    """
    if os.getuid() != 0:
        pytest.skip("only root can become another user")
    answer, tell = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # the child does next to nothing
        pid = os.fork()
    if pid == 0:
        try:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            os.write(tell, json.dumps(deed()).encode())
        finally:
            os._exit(0)
    os.close(tell)
    with os.fdopen(answer, "rb") as file:
        content = file.read()
    os.waitpid(pid, 0)
    return json.loads(content)


def refusal_of(deed: Callable[[], Any]) -> str:
    """Return the name of the error that a deed is refused with; "" if it is not."""
    try:
        deed()
    except OSError as error:
        return type(error).__name__
    return ""
