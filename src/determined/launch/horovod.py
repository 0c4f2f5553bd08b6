"""Old launcher of trial classes, for configurations that name it: torch.distributed trains them.

    python -m determined.launch.horovod [[HOROVOD_OVERRIDES...] --] [--autohorovod] --trial TRIAL

Horovod itself is not part of this library. A script that imports it runs with `--autohorovod` on
one slot, where the old launcher did not use Horovod either.
"""

from __future__ import annotations

import argparse
import os
import sys
from typing import NoReturn

from determined._info import get_cluster_info
from determined.launch import torch_distributed

_INSTEAD = "python3 -m determined.launch.torch_distributed"


def main(args: list[str]) -> int:
    """Run a trial class with torch.distributed, or a script on one slot; returns its exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m determined.launch.horovod",
        usage="%(prog)s [[HOROVOD_OVERRIDES...] --] [--autohorovod] (--trial TRIAL | SCRIPT...)",
        allow_abbrev=False,
    )
    parser.add_argument("--autohorovod", action="store_true", help="skip Horovod on a single slot")
    parser.add_argument("--trial", help="a trial class to run, as module:Class")
    parser.add_argument("script", nargs=argparse.REMAINDER, help="the command to run")
    parsed = parser.parse_args(args[args.index("--") + 1 :] if "--" in args else args)
    if parsed.trial is None:
        _run_script(parser, parsed.script, parsed.autohorovod)
    print(f"Training with torch.distributed; write `{_INSTEAD} --trial {parsed.trial}`.")  # noqa: T201
    return torch_distributed.main(*torch_distributed.parse_args(["--trial", parsed.trial]))


def _run_script(
    parser: argparse.ArgumentParser, script: list[str], may_do_without: bool
) -> NoReturn:
    if not script:
        parser.error("empty script: give a command to run, or --trial module:Class")
    info = get_cluster_info()
    if not may_do_without or (info is not None and len(info.slot_ids) > 1):
        parser.exit(
            1,
            f"Horovod is not part of this library, so it cannot start `{' '.join(script)}`. With "
            f"torch.distributed: `{_INSTEAD} SCRIPT`.\n",
        )
    sys.stdout.flush()
    os.execvp(script[0], script)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
