"""The fork server: import torch (or not: `light`), then fork a keeper for each requested run.

    python .../warm/__main__.py DESCRIPTOR IDLE_SECONDS torch|light ROOM

DESCRIPTOR is a socket to the supervisor. ROOM is as long as the commands that forked processes will
show instead of this one. Run by path, so that the programs of trials, which run in forks of this
very file, have only one frame of ours below them.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import sys
from pathlib import Path


def _c_function(library: ctypes.CDLL, name: str, result: type, *arguments: type) -> object:
    function = getattr(library, name)
    function.restype, function.argtypes = result, arguments
    return function


if __name__ == "__main__":
    if not getattr(sys.flags, "safe_path", False):
        del sys.path[0]  # our own folder
    atexit.register(lambda: ending.forget_what_was_loaded())  # registered first, so called last
    from determined.platform.runs.warm import ending, fresh_process, ranks, server

    try:
        server.main(sys.argv[1:])
        os._exit(0)
    except fresh_process.ProgramStart as raised:
        start = raised.with_traceback(None)
    if start.program.is_module and start.program.target == ranks.LAUNCHER:
        try:
            start.environment |= ranks.start_fork_server(start.environment)
        except fresh_process.ProgramStart as raised:
            start = raised.with_traceback(None)
    fresh_process.become_program(start.program, start.environment)
    failed: object = False
    if start.program.is_module:
        import runpy

        try:
            runpy._run_module_as_main(start.program.target)  # type: ignore[attr-defined]
        except SystemExit:
            raise
        except BaseException as error:
            theirs = getattr(error.__traceback__, "tb_next", None)
            sys.excepthook(type(error), error.with_traceback(theirs), theirs)
            failed, sys.last_type = True, type(error)
    else:
        # The function that the interpreter runs scripts with: it prints tracebacks, and handles
        # SystemExit and KeyboardInterrupt.
        name = os.fsencode(Path.cwd() / start.program.target)
        opened = _c_function(ctypes.CDLL(None), "fopen", ctypes.c_void_p)(name, b"rb")  # type: ignore[operator]
        arguments = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int, ctypes.c_void_p)
        run = _c_function(ctypes.pythonapi, "PyRun_SimpleFileExFlags", ctypes.c_int, *arguments)
        failed = run(opened, name, 1, None)  # type: ignore[operator]
    if failed and getattr(sys, "last_type", None) is KeyboardInterrupt:
        # It has been printed. Raise it for the interpreter, which then ends by SIGINT itself.
        sys.excepthook = lambda *error: None
        raise KeyboardInterrupt
    if failed:
        sys.exit(1)
