"""`python -m determined.selftest._child CHECK DEVICE FILE`: one check, its answer in a file."""

from __future__ import annotations

import importlib
import json
import sys
import traceback
from pathlib import Path

import torch

from determined.selftest._result import FAILS, HOLDS, NOT_RUN, DoesNotHoldError, NotRunError

_MODULES = {"ddp": "ranks", "ddp-gloo": "ranks", "fsdp": "ranks"}


def answer(check: str, device: str) -> tuple[str, str]:
    """Run a check in this process."""
    module = importlib.import_module(f"determined.selftest.checks.{_MODULES.get(check, check)}")
    function = getattr(module, check.replace("-", "_"))
    try:
        return HOLDS, function(torch.device(device), Path.cwd())
    except NotRunError as error:
        return NOT_RUN, str(error)
    except DoesNotHoldError as error:
        return FAILS, str(error)
    except Exception as error:
        traceback.print_exc()
        first = (str(error).strip() or "no message").split("\n")[0]
        return FAILS, f"{type(error).__name__}: {first}"


if __name__ == "__main__":
    found = answer(*sys.argv[1:3])
    Path(sys.argv[3]).write_text(json.dumps(found))
