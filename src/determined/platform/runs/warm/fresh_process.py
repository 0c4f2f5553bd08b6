"""Turn a forked process into what a new interpreter would be.

`become_program` resets all that a program can see of its process: what a new interpreter reads from
its command line and its environment, what it draws at random, what the kernel shows others about
it. What it cannot reset (options, variables that were read at import) is the same already, or the
program starts cold: see `program.py`.
"""

from __future__ import annotations

import builtins
import contextlib
import ctypes
import io
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from importlib.machinery import BuiltinImporter
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn, TextIO

from determined.platform.runs.warm.ending import skip_destructors
from determined.platform.runs.warm.program import Cold, Program, shadowed

_UNCATCHABLE = (signal.SIGKILL, signal.SIGSTOP)


class ProgramStart(BaseException):
    """Unwinds all our frames: the program starts where this is caught, at the bottom."""

    def __init__(self, program: Program, environment: Mapping[str, str]) -> None:
        super().__init__()
        self.program = program
        self.environment = dict(environment)


def become_program(program: Program, environment: Mapping[str, str]) -> None:
    """Make this process what the program's own would be; working directory and stdio are set."""
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    if program.through_shell:  # as shells do
        environment = {**environment, "PWD": str(Path.cwd())}
    os.environ.clear()
    os.environ.update(environment)
    show_command(program.command, environment)
    reset_signals()
    _open_streams()
    _set_system(program)
    _draw_at_random()
    _set_identity()
    _set_threads(environment)
    _make_main()
    skip_destructors()


def reset_signals() -> None:
    """Handle signals as a new interpreter does."""
    signal.set_wakeup_fd(-1)
    for number in signal.valid_signals():
        if number not in _UNCATCHABLE and signal.getsignal(number) is not None:
            signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for name in ("SIGPIPE", "SIGXFSZ", "SIGXFZ"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def show_command(command: Iterable[str], environment: Mapping[str, str]) -> None:
    """Let `ps` and /proc show a command and its variables, by which processes are found.

    The kernel reads them from where it put those of the server, which has reserved enough room.
    """
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    arg_start, arg_end, env_start, env_end = map(int, fields[45:49])
    title = " ".join(command).encode(errors="surrogateescape").replace(b"\0", b" ")
    room = arg_end - arg_start
    # If the last byte is not null, the kernel takes it all as one text up to the first null.
    ctypes.memmove(arg_start, title[: room - 2].ljust(room - 1, b"\0") + b".", room)
    room, content = env_end - env_start, bytearray()
    for name, value in sorted(environment.items(), key=lambda item: len(item[1])):
        entry = f"{name}={value}\0".encode(errors="surrogateescape")
        if len(content) + len(entry) > room:
            break
        content += entry
    ctypes.memmove(env_start, bytes(content.ljust(room, b"\0")), room)


def _open_streams() -> None:
    """Open stdin, stdout and stderr as the interpreter does at its start."""
    is_unbuffered = bool(getattr(sys.stdout, "write_through", False))
    for descriptor, name in enumerate(("stdin", "stdout", "stderr")):
        old: Any = getattr(sys, name)
        mode = "r" if descriptor == 0 else "w"
        new: Any = None
        with contextlib.suppress(OSError):
            os.fstat(descriptor)
            buffering = 0 if is_unbuffered and mode == "w" else -1
            binary: Any = open(descriptor, f"{mode}b", buffering, closefd=False)  # noqa: SIM115
            raw = getattr(binary, "raw", binary)
            raw.name = f"<{name}>"
            new = io.TextIOWrapper(
                binary,
                old.encoding,
                "backslashreplace" if descriptor == 2 else old.errors,
                newline="\n",
                line_buffering=not is_unbuffered and (raw.isatty() or descriptor == 2),
                write_through=is_unbuffered,
            )
            new.mode = mode
        setattr(sys, name, new)
        setattr(sys, f"__{name}__", new)
        _hand_on(old, new)


def _hand_on(old: TextIO, new: TextIO | None) -> None:
    """Give the new stream to log handlers that hold an old one."""
    for reference in logging._handlerList:  # type: ignore[attr-defined]
        handler = reference()
        if new is not None and getattr(handler, "stream", None) is old:
            handler.stream = new


def _set_system(program: Program) -> None:
    sys.argv = ["-m" if program.is_module else program.target, *program.arguments]
    sys.orig_argv = list(program.command)
    sys.executable = program.interpreter
    spawn: Any = sys.modules.get("multiprocessing.spawn")
    if spawn is not None:
        spawn.set_executable(sys.executable)
    if not getattr(sys.flags, "safe_path", False):
        sys.path.insert(0, search_folder(program))


def search_folder(program: Program) -> str:
    """The folder that a program's own modules come from."""
    if program.is_module:
        return str(Path.cwd())
    script = program.target
    with contextlib.suppress(OSError):  # one link is followed, as the interpreter does
        script = os.path.join(os.path.dirname(script), os.readlink(script))  # noqa: PTH115, PTH118, PTH120
    return os.path.realpath(os.path.dirname(script))  # noqa: PTH120


def clash(program: Program, cwd: Path) -> Cold | None:
    """Return why a program's own modules prevent it from starting here."""
    folder = cwd if program.is_module else (cwd / program.target).resolve().parent
    loaded = {name.partition(".")[0] for name in sys.modules}
    return shadowed(list(_modules(folder)), loaded)


def _modules(folder: Path) -> Iterator[str]:
    """Names of the modules and packages in a folder."""
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            name, dot, suffix = entry.name.partition(".")
            is_module = dot and (suffix == "py" or suffix.endswith("so"))
            if is_module or (not dot and Path(entry.path, "__init__.py").is_file()):
                yield name


def _draw_at_random() -> None:
    """Draw what processes draw when they start; `random` does so by itself after a fork."""
    torch: Any = sys.modules.get("torch")
    if torch is not None:
        torch.default_generator.seed()
    numpy_random: Any = sys.modules.get("numpy.random")
    if numpy_random is not None:
        numpy_random.seed()
    processes: Any = sys.modules.get("multiprocessing.process")
    if processes is not None:
        processes.current_process().authkey = os.urandom(32)


def _set_identity() -> None:
    started: Any = time.time_ns() if sys.version_info >= (3, 13) else time.time()
    logging._startTime = started  # type: ignore[attr-defined]
    threading.main_thread()._set_native_id()  # type: ignore[attr-defined]
    processes: Any = sys.modules.get("multiprocessing.process")
    if processes is not None:
        processes.ORIGINAL_DIR = str(Path.cwd())


def _set_threads(environment: Mapping[str, str]) -> None:
    """Give OpenBLAS as many threads as these variables say: in the fork server it has one."""
    for library, suffix in find_openblas():
        names = ("OPENBLAS_NUM_THREADS", "GOTO_NUM_THREADS", "OMP_NUM_THREADS")
        values = (environment.get(name, "").partition(",")[0].strip() for name in names)
        chosen = next((int(value) for value in values if value.isdigit() and int(value)), 0)
        number = chosen or getattr(library, f"{suffix[0]}get_num_procs{suffix[1]}")()
        if number > 1:
            getattr(library, f"{suffix[0]}set_num_threads{suffix[1]}")(number)


def find_openblas() -> list[tuple[ctypes.CDLL, tuple[str, str]]]:
    """Return the OpenBLAS libraries that are loaded, with the prefix and suffix of their names."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    paths = {line.partition("/")[2] for line in lines if "openblas" in line.rpartition("/")[2]}
    found = []
    for path in sorted(paths):
        library = ctypes.CDLL(f"/{path}")
        for prefix in ("openblas_", "scipy_openblas_"):
            for suffix in ("", "64_", "_64"):
                if hasattr(library, f"{prefix}set_num_threads{suffix}"):
                    found.append((library, (prefix, suffix)))
    return found


def _make_main() -> None:
    main = ModuleType("__main__")
    main.__dict__.update(__builtins__=builtins, __loader__=BuiltinImporter)
    if sys.version_info < (3, 14):
        main.__dict__["__annotations__"] = {}
    sys.modules["__main__"] = main


def execute(
    program: Program, name: str, argv: tuple[str, ...], environment: Mapping[str, str]
) -> NoReturn:
    """Be the program, in place of `os.execvpe`, in a process that was forked from a fork server."""
    if not program.is_module and not os.path.isfile(program.target):  # noqa: PTH113
        os.execvpe(name, argv, environment)  # it reports this error itself
    raise ProgramStart(program, environment)
