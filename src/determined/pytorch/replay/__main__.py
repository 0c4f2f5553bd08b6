"""The command line: `python -m determined.pytorch.replay`."""

from __future__ import annotations

import argparse
import sys

from determined.errors import DeterminedError
from determined.pytorch.replay._running import replay


def main(argv: list[str] | None = None) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(
        prog="python -m determined.pytorch.replay",
        description="Train some batches of a run again, and compare them with its checkpoints.",
    )
    parser.add_argument(
        "path", metavar="CHECKPOINTS", help="a checkpoint, or the folder of a run's"
    )
    parser.add_argument("--batches", required=True, metavar="A:B", help="counted from 1")
    parser.add_argument(
        "--with",
        dest="callbacks",
        action="append",
        default=[],
        metavar="MODULE:CLASS",
        help="a callback that sees the batches",
    )
    parser.add_argument("--pdb", action="store_true", help="stop before the first batch")
    options = parser.parse_args(argv)
    first, _, last = options.batches.partition(":")
    if not (first.isdigit() and last.isdigit()):
        parser.error(f"--batches: expected A:B, such as 7900:8100, got {options.batches!r}")
    try:
        checked = replay(options.path, (int(first), int(last)), options.callbacks, pdb=options.pdb)
    except (DeterminedError, ValueError, RuntimeError, OSError) as error:
        parser.exit(2, f"{parser.prog}: {error}\n")
    sys.stdout.write(f"{checked}\n")
    return 0 if checked.departure is None else 1


if __name__ == "__main__":
    sys.exit(main())
