"""Programs end warm as they do cold: status, signal, traceback, last output."""

from __future__ import annotations

import pytest

from tests.platform.runs.warm.conftest import Bench
from tests.support.logs import without_places

pytestmark = [pytest.mark.multiprocess, pytest.mark.timeout(600)]

_ENDINGS = {
    "the end": "print('bye')",
    "sys.exit": "import sys; sys.exit(3)",
    "sys.exit with words": "import sys; sys.exit('words')",
    "sys.exit in a thread": "import threading, sys; threading.Thread(target=sys.exit).start()",
    "os._exit": "import os; os._exit(7)",
    "exception": "def f():\n    raise ValueError('wrong')\nf()",
    "chained": "try:\n    1 / 0\nexcept Exception as e:\n    raise KeyError('k') from e",
    "syntax error": "def f(:\n    pass",
    "KeyboardInterrupt": "import os, signal; os.kill(os.getpid(), signal.SIGINT)\nwhile True: pass",
    "SIGTERM": "import os, signal; os.kill(os.getpid(), signal.SIGTERM)\nwhile True: pass",
    "SIGKILL": "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
    "abort": "import os; os.abort()",
    "excepthook": "import sys; sys.excepthook = lambda *a: print('hook', a[0])\n1 / 0",
    "atexit": "import atexit; atexit.register(print, 'last'); 1 / 0",
    "no such script": None,
    "null bytes": "print(1)\0",
    "warnings": "import warnings; warnings.warn('careful', UserWarning)",
    "unraisable": "class A:\n    def __del__(self): 1 / 0\nA()",
    "objects": """
import atexit, ctypes, logging, tempfile, threading, weakref
import torch
class Last:
    def __init__(self, name):
        self.name = name
    def __del__(self, say=print):
        say("deleted", self.name)
kept, cycle = Last("global"), Last("cycle")
cycle.itself = cycle
folder = tempfile.TemporaryDirectory()
weakref.finalize(folder, print, "finalized")
atexit.register(lambda: logging.warning(__import__("torch").__name__))
libc = ctypes.CDLL(None)
libc.fdopen.restype = ctypes.c_void_p
libc.fputs(b"left in a buffer of C", ctypes.c_void_p(libc.fdopen(1, b"w")))
threading.Timer(0.05, lambda: Last("of a thread")).start()
raise SystemExit(5)
""",
}


@pytest.mark.parametrize("as_module", [False, True], ids=["script", "module"])
def test_programs_end_as_they_do_cold(bench: Bench, as_module: bool) -> None:
    command = ("-m", "program") if as_module else ("program.py",)
    layouts = []
    for name, text in _ENDINGS.items():
        files = {} if text is None else {"program.py": text}
        pair = [bench.lay_out(*command, files=files, warm=warm) for warm in (True, False)]
        layouts.append((name, pair))
    for name, pair in layouts:
        warm, cold = bench.run(*pair)
        texts = [without_places(run.log.read_text(), run.path) for run in pair]
        assert texts[0] == texts[1], name
        for field in ("exit_code", "reason", "signal", "leftover_processes"):
            assert getattr(warm, field) == getattr(cold, field), (name, field)
    assert len(bench.fork_servers) == 1
