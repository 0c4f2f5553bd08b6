"""How an exception becomes an exit code and a message."""

from __future__ import annotations

import os

import click
import pytest

from determined.cli._commands.errors import exit_code_of
from determined.errors import CheckpointNotFound


@pytest.mark.parametrize(
    ("raised", "code", "told"),
    [
        (CheckpointNotFound("no checkpoint x"), 1, "det: no checkpoint x"),
        (PermissionError(13, "Permission denied", "/x"), 1, "Permission denied"),
        (click.ClickException("plain"), 1, "det: plain"),
        (click.UsageError("wrong"), 2, "det: wrong"),
        (KeyboardInterrupt(), 3, "det: interrupted"),
        (click.Abort(), 3, "det: interrupted"),
        (click.exceptions.Exit(7), 7, ""),
        (BrokenPipeError(), 0, ""),
    ],
)
def test_exceptions_become_exit_codes(
    raised: BaseException, code: int, told: str, capfd: pytest.CaptureFixture[str]
) -> None:
    @click.command()
    def command() -> None:
        raise raised

    keep = os.dup(1)
    try:
        assert exit_code_of(command, []) == code
    finally:
        os.dup2(keep, 1)
        os.close(keep)
    shown = capfd.readouterr().err
    assert told in shown
    assert "Traceback" not in shown


def test_fault_of_our_own_shows_its_traceback(capfd: pytest.CaptureFixture[str]) -> None:
    @click.command()
    def command() -> None:
        raise ZeroDivisionError("ours")

    assert exit_code_of(command, []) == 1
    assert "ZeroDivisionError: ours" in capfd.readouterr().err


def test_debug_shows_tracebacks_of_expected_errors(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    @click.command()
    def command() -> None:
        raise CheckpointNotFound("x")

    monkeypatch.setenv("DET_DEBUG", "true")
    assert exit_code_of(command, []) == 1
    assert "Traceback" in capfd.readouterr().err
