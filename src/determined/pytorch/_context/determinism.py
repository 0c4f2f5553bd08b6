"""What `init(exact=True)` sets: the same program must compute the same bits twice on its device."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator
from typing import Any

import torch

logger = logging.getLogger("determined.pytorch")

WORKSPACE = "CUBLAS_WORKSPACE_CONFIG"
_WORKSPACES = (":4096:8", ":16:8")  # with others cuBLAS may choose among its streams' buffers


@contextlib.contextmanager
def deterministic(device: torch.device) -> Iterator[list[str]]:
    """Set what makes computations repeatable, and say what; other flags return to what they were.

    Operators without a deterministic form raise from then on.
    """
    with contextlib.ExitStack() as stack:
        done = [_deterministic_algorithms(stack)]
        if device.type == "cuda":
            done += [_workspace()] if torch.version.hip is None else []
            done += [_no_search_for_kernels(stack), _no_tf32(stack)]
        logger.info(f"pytorch.init(exact=True) on {device.type}: {', '.join(done)}.")
        yield done


def _deterministic_algorithms(stack: contextlib.ExitStack) -> str:
    stack.callback(
        torch.use_deterministic_algorithms,
        torch.are_deterministic_algorithms_enabled(),
        warn_only=torch.is_deterministic_algorithms_warn_only_enabled(),
    )
    torch.use_deterministic_algorithms(True)
    return "deterministic algorithms"


def _workspace() -> str:
    # Not undone: cuBLAS reads it once in the life of a process.
    found = os.environ.setdefault(WORKSPACE, _WORKSPACES[0])
    if found not in _WORKSPACES:
        raise ValueError(
            f"{WORKSPACE} is {found!r}, with which cuBLAS is not deterministic, but "
            f"pytorch.init(exact=True) asks for that. Set it to {' or '.join(_WORKSPACES)}, or "
            "leave it unset."
        )
    return f"{WORKSPACE}={found}"


def _no_search_for_kernels(stack: contextlib.ExitStack) -> str:
    # Measuring picks the fastest kernel, which is not the same one every time.
    _set(stack, torch.backends.cudnn, "benchmark", False)
    return "no cuDNN benchmark"


def _no_tf32(stack: contextlib.ExitStack) -> str:
    """TF32 repeats its bits, but only on GPUs of one generation, and chips without it differ."""
    with contextlib.suppress(RuntimeError):  # torch refuses to read what was set under two names
        stack.callback(torch.set_float32_matmul_precision, torch.get_float32_matmul_precision())
    torch.set_float32_matmul_precision("highest")
    _set(stack, torch.backends.cudnn, "allow_tf32", False)
    for part in ("conv", "rnn"):  # torch.backends.fp32_precision may say otherwise
        settings = getattr(torch.backends.cudnn, part, None)
        if getattr(settings, "fp32_precision", None) == "tf32":
            _set(stack, settings, "fp32_precision", "ieee")
    return "no TF32"


def _set(stack: contextlib.ExitStack, owner: Any, name: str, value: Any) -> None:
    with contextlib.suppress(RuntimeError):
        stack.callback(setattr, owner, name, getattr(owner, name))
    setattr(owner, name, value)
