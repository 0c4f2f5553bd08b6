# ruff: noqa: T201, PTH109, PTH115, PTH208
# mypy: ignore-errors
"""A program that writes down all that it can see of its process: run warm and cold, compared.

probe.py OUTPUT ARGUMENT...
"""

import atexit
import ctypes
import faulthandler
import gc
import json
import locale
import logging
import multiprocessing
import os
import random
import resource
import signal
import sys
import tempfile
import threading
import time
import warnings
from pathlib import Path

_PRCTL = {"death signal": 2, "subreaper": 37}


def of_the_interpreter():
    main = sys.modules["__main__"]
    return {
        "argv": sys.argv[2:],
        "argv0": sys.argv[0],
        "orig_argv": sys.orig_argv[1:2],
        "path": sys.path,
        "flags": list(sys.flags),
        "executable": sys.executable,
        "prefixes": [sys.prefix, sys.base_prefix, sys.exec_prefix],
        "main": sorted(vars(main).keys() - {"__warningregistry__"}),
        "main file": main.__file__,
        "main spec": main.__spec__ and [main.__spec__.name, main.__spec__.origin],
        "main loader": type(main.__loader__).__name__,
        "main package": main.__package__,
        "main is me": main.__dict__ is globals(),
        "encodings": [sys.getfilesystemencoding(), sys.getfilesystemencodeerrors()],
        "locale": locale.setlocale(locale.LC_ALL),
        "recursion limit": sys.getrecursionlimit(),
        "switch interval": sys.getswitchinterval(),
        "gc": [gc.isenabled(), gc.get_threshold()],
        "faulthandler": faulthandler.is_enabled(),
        "hash seed is fixed": hash("determined") if "PYTHONHASHSEED" in os.environ else None,
        "dont_write_bytecode": sys.dont_write_bytecode,
        "trace": [sys.gettrace() is None, sys.getprofile() is None],
        "exc_info": str(sys.exc_info()),
        "xoptions": sys._xoptions,
        "excepthook": sys.excepthook is sys.__excepthook__,
    }


def of_the_process():
    libc = ctypes.CDLL(None)
    values = {}
    for name, option in _PRCTL.items():
        value = ctypes.c_int()
        libc.prctl(option, ctypes.byref(value), 0, 0, 0)
        values[name] = value.value
    umask = os.umask(0)
    os.umask(umask)
    return {
        **values,
        "cwd": os.getcwd(),
        "environment": dict(os.environ),
        "environment for the kernel": sorted(
            Path("/proc/self/environ").read_text().strip("\0").split("\0")
        ),
        "environment for C": libc_environment(libc),
        "umask": umask,
        "limits": {n: resource.getrlimit(getattr(resource, n)) for n in _limits()},
        "nice": os.nice(0),
        "affinity": sorted(os.sched_getaffinity(0)),
        "scheduler": os.sched_getscheduler(0),
        "leads its group": os.getpgid(0) == os.getpid(),
        "leads its session": os.getsid(0) == os.getpid(),
        "comm": Path("/proc/self/comm").read_text(),
        "cmdline": Path("/proc/self/cmdline").read_text().replace("\0", " ").split()[1:],
        "files": {fd: os.readlink(f"/proc/self/fd/{fd}") for fd in ("0", "1", "2")},
        "other files": [fd for fd in range(3, 256) if Path(f"/proc/self/fd/{fd}").exists()],
        "signals": {n: str(signal.getsignal(n)) for n in sorted(signal.valid_signals())},
        **of_the_kernel(),
        "wakeup": signal.set_wakeup_fd(-1),
        "timer": signal.getitimer(signal.ITIMER_REAL),
        "oom": Path("/proc/self/oom_score_adj").read_text(),
        "CPU time is young": time.process_time() < 30,
        "temporary folder": tempfile.gettempdir(),
    }


def of_the_kernel():
    lines = Path("/proc/self/status").read_text().splitlines()
    seen = dict(line.split(":", 1) for line in lines)
    names = ("NoNewPrivs", "Seccomp", "Groups", "Uid", "Gid", "CapEff")
    masks = ("SigPnd", "ShdPnd", "SigBlk", "SigIgn", "SigCgt")
    of_the_c_library = 0b11 << 31  # signals 32 and 33: it sets them with the first thread
    return {name: seen[name] for name in names} | {
        name: hex(int(seen[name], 16) & ~of_the_c_library) for name in masks
    }


def libc_environment(libc):
    libc.getenv.restype = ctypes.c_char_p
    return {name: str(libc.getenv(name.encode())) for name in os.environ}


def _limits():
    return [name for name in dir(resource) if name.startswith("RLIMIT_")]


def of_the_streams():
    seen = {"stdin": sys.stdin.read()}
    for name in ("stdin", "stdout", "stderr"):
        stream = getattr(sys, name)
        raw = getattr(stream.buffer, "raw", stream.buffer)
        seen[name + " stream"] = [
            *(stream is getattr(sys, f"__{name}__"), stream.encoding, stream.errors),
            *(stream.line_buffering, stream.write_through, stream.mode, stream.name),
            *(type(stream.buffer).__name__, type(raw).__name__, raw.closefd, raw.mode),
            *(stream.newlines, stream.seekable(), stream.isatty(), raw.name, stream.fileno()),
        ]
    return seen


def of_the_libraries():
    import numpy
    import torch

    import determined.pytorch

    libraries = {}
    for line in Path("/proc/self/maps").read_text().splitlines():
        path = line.partition("/")[2]
        if "openblas" in path:
            library = ctypes.CDLL("/" + path)
            for name in ("scipy_openblas_get_num_threads64_", "openblas_get_num_threads"):
                if hasattr(library, name):
                    libraries[name] = getattr(library, name)()
    return {
        "threads of torch": [torch.get_num_threads(), torch.get_num_interop_threads()],
        "threads of BLAS": libraries,
        "threads after import": len(os.listdir("/proc/self/task")),
        "numpy": float(numpy.ones((300, 300)).dot(numpy.ones((300, 300))).sum()),
        "torch": float(torch.ones(300, 300).mm(torch.ones(300, 300)).sum()),
        "threads after work": len(os.listdir("/proc/self/task")),
        "parallel info": torch.__config__.parallel_info(),
        "default dtype": str(torch.get_default_dtype()),
        "grad": torch.is_grad_enabled(),
        "warnings": len(warnings.filters) > 0,
        "log level": logging.root.level,
        "log handlers": [str(handler) for handler in logging.root.handlers],
        "library": determined.pytorch.__file__,
        "memory sharing": torch.multiprocessing.get_sharing_strategy(),
    }


def drawn():
    """What must differ from process to process."""
    import numpy
    import torch

    return {
        "random": random.random(),
        "numpy": float(numpy.random.random()),
        "torch": torch.initial_seed(),
        "torch draw": float(torch.rand(1)),
        "authkey": multiprocessing.current_process().authkey.hex(),
        "pid": os.getpid(),
    }


def _child(queue):
    queue.put([os.getcwd(), sys.argv, sys.path, __name__, multiprocessing.parent_process().name])


def of_children():
    import torch

    seen = {"start method": multiprocessing.get_start_method(allow_none=True)}
    for method in ("fork", "spawn", "forkserver"):
        context = multiprocessing.get_context(method)
        queue = context.Queue()
        child = context.Process(target=_child, args=(queue,))
        child.start()
        seen[method] = [queue.get(timeout=120), child.name]
        child.join()
        seen[method].append(child.exitcode)
    seen["main process"] = multiprocessing.current_process().name
    data = torch.utils.data.TensorDataset(torch.arange(16))
    loader = torch.utils.data.DataLoader(data, batch_size=4, num_workers=2)
    seen["loader"] = [batch.tolist() for (batch,) in loader]
    return seen


def depth():
    def dive(count):
        try:
            return dive(count + 1)
        except RecursionError:
            return count

    return dive(0)


if __name__ == "__main__":
    began = time.time()
    process = of_the_process()  # before anything else opens files or starts threads
    seen = {
        "process": process,
        "interpreter": of_the_interpreter(),
        "streams": of_the_streams(),
        "libraries": of_the_libraries(),
        "children": of_children(),
        "main thread": [
            threading.current_thread() is threading.main_thread(),
            threading.main_thread().ident == threading.get_ident(),
            threading.main_thread().native_id == threading.get_native_id(),
        ],
        "log is young": began
        - logging.LogRecord("", 0, "", 0, "", (), None).created
        + logging.LogRecord("", 0, "", 0, "", (), None).relativeCreated / 1000
        < 60,
    }
    Path(sys.argv[1]).write_text(json.dumps({"same": seen, "drawn": drawn(), "depth": depth()}))
    atexit.register(print, "first registered, last called")
    atexit.register(print, "last registered, first called")
    threading.Thread(target=lambda: (time.sleep(0.05), print("a thread at the end"))).start()
    print("bye")
