"""The command line: `python -m determined.pytorch.verify_resume`."""

from __future__ import annotations

import argparse
import subprocess
import sys

from determined.pytorch.verify_resume._compare import verify_resume
from determined.pytorch.verify_resume._part import Part, run_part


def main(argv: list[str] | None = None) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(
        prog="python -m determined.pytorch.verify_resume",
        description="Train N batches in one go, then stopped and resumed, and compare bit by bit.",
    )
    parser.add_argument("--batches", type=int, default=20, metavar="N", help="default: 20")
    parser.add_argument(
        "--cut", type=int, metavar="K", help="stop once, after K batches (default: several stops)"
    )
    parser.add_argument("--part", help=argparse.SUPPRESS)
    parser.add_argument("script", help="the training script")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="its own arguments")
    options = parser.parse_args(argv)
    if options.part is not None:
        run_part(Part.from_json(options.part), options.script, options.arguments)
        return 0
    try:
        report = verify_resume(options.script, options.arguments, options.batches, options.cut)
    except (ValueError, OSError, RuntimeError, subprocess.TimeoutExpired) as e:
        parser.exit(2, f"{parser.prog}: {e}\n")
    sys.stdout.write(f"{report}\n")
    return 0 if report.difference is None else 1


if __name__ == "__main__":
    sys.exit(main())
