"""From exceptions to exit codes: 0 fine, 1 error, 2 wrong usage, 3 interrupted, 4 held."""

from __future__ import annotations

import os
import sys
import traceback
from pathlib import Path
from typing import IO, Any

import click

from determined._os.printable import printable
from determined.cli._commands.group import OutputClosedError
from determined.errors import ConfigurationError, DeterminedError

OK, ERROR, USAGE, INTERRUPTED = 0, 1, 2, 3
HELD = 4
"""The experiment that was waited for has paused itself, and waits for a person."""


def exit_code_of(command: click.Command, arguments: list[str]) -> int:
    """Run a command; whatever it raises is told on stderr and becomes an exit code."""
    try:
        code = _run(command, arguments)
        sys.stdout.flush()
        return code
    except (BrokenPipeError, OutputClosedError):  # such as `head`, which has seen enough
        _discard_output()
        return OK


def _run(command: click.Command, arguments: list[str]) -> int:
    try:
        result = command.main(arguments, prog_name="det", standalone_mode=False)
        return result if isinstance(result, int) else OK
    except click.UsageError as error:
        _show_usage(error)
        return USAGE
    except (click.Abort, KeyboardInterrupt):
        complain("interrupted")
        return INTERRUPTED
    except (BrokenPipeError, OutputClosedError):
        raise
    except ConfigurationError as error:
        for problem in error.problems:
            click.echo(problem.render(), err=True)
        return ERROR
    except (DeterminedError, OSError, click.ClickException) as error:
        if wants_traceback():
            traceback.print_exc()
        complain(_words(error))
        return ERROR
    except Exception:
        return _explain_crash()


def _explain_crash() -> int:
    """A damaged store may hold anything; without one, the fault is ours."""
    if wants_traceback() or not (fault := _store_fault()):
        traceback.print_exc()
        complain("this is a bug in `det` itself; the traceback above shows where")
    else:
        complain(fault)
    return ERROR


def _store_fault() -> str:
    """What is wrong with the store, if anything."""
    from determined._contracts.home import home_path
    from determined.store import find_damage

    try:
        error = find_damage(home_path())
    except Exception:  # the first error is the one to show
        return ""
    return "" if error is None else str(error)


def _words(error: Exception) -> str:
    if isinstance(error, click.ClickException):
        return error.format_message()
    if isinstance(error, OSError) and error.filename and error.strerror:
        return f"{error.filename}: {error.strerror}"
    if isinstance(error, FileNotFoundError) and not _has_working_directory():
        return "The working directory no longer exists: change to another one, such as `cd ~`."
    return str(error) or type(error).__name__


def _has_working_directory() -> bool:
    try:
        return bool(Path.cwd())
    except FileNotFoundError:
        return False


def complain(message: str) -> None:
    """Write an error to stderr, in red on terminals."""
    text = click.style("det: " + printable(message, keep="\n"), fg="red")
    click.echo(text, err=True, color=use_colour(sys.stderr))


def wants_traceback() -> bool:
    """Whether DET_DEBUG asks for tracebacks of expected errors too."""
    return os.environ.get("DET_DEBUG", "").lower() in ("1", "true")


def use_colour(stream: IO[Any]) -> bool:
    """Whether to colour: on terminals, unless NO_COLOR or a dumb terminal says otherwise."""
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return not plain and stream.isatty()


def _show_usage(error: click.UsageError) -> None:
    if type(error).__name__ == "NoArgsIsHelpError":  # its message is the whole help already
        click.echo(error.format_message(), err=True)
        return
    if error.ctx is not None:
        path = error.ctx.command_path
        click.echo(error.ctx.get_usage(), err=True)
        click.echo(f"`{path} --help` shows more.\n", err=True)
    complain(error.format_message())


def _discard_output() -> None:
    """Point stdout at nothing, so that the interpreter's last flush does not fail again."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, sys.stdout.fileno())
    os.close(nothing)
