"""Let a warm program exit without tearing down what it shares with its fork server.

An interpreter normally tears down all of torch before it exits: every module's names, every
operator's kernels, every interned string. A forked process would have to copy each of those pages
first, which takes several times as long as the training of a tiny trial and has no visible effect.
So what the fork server loaded stays as it is until the process is gone. Everything that the program
itself added ends as usual: its threads, exit handlers, modules and their objects, output buffers.
"""

from __future__ import annotations

import ctypes
import sys
import weakref
from types import ModuleType
from typing import Any

_NEEDED_TO_THE_END = frozenset({"__main__", "builtins", "sys"})
_loaded: dict[str, ModuleType] = {}


def keep_what_is_loaded() -> None:
    """Call in the server once everything is imported: these modules will never be torn down."""
    _loaded.update((n, m) for n, m in sys.modules.items() if n not in _NEEDED_TO_THE_END)
    increase = ctypes.pythonapi.Py_IncRef
    for module in _loaded.values():
        increase(ctypes.py_object(module))  # a reference that no finalization gives back
    for finalizer in list(weakref.finalize._registry):  # type: ignore[attr-defined]
        alive = finalizer.peek()
        if alive is not None and alive[1].__module__ == "torch.library":
            finalizer.atexit = False  # it would deregister the operators' kernels one by one


def skip_destructors() -> None:
    """Call after the fork: exit at once when all handlers registered from now on have run."""
    libc = ctypes.CDLL(None)
    if hasattr(libc, "on_exit"):  # glibc
        libc.on_exit(libc._exit, None)  # called with the exit status
        libc.__cxa_atexit(libc.fflush, None, None)


def forget_what_was_loaded() -> None:
    """The last exit handler of a program: leave only what the program added to tear down.

    Not with a process group open: that ends with the module that holds it.
    """
    distributed: Any = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return
    for name, module in _loaded.items():
        if sys.modules.get(name) is module:
            del sys.modules[name]
