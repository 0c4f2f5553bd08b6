"""The command line: `python -m determined.pytorch.diff`."""

from __future__ import annotations

import argparse
import json
import sys

from determined.errors import DeterminedError
from determined.pytorch.diff._folders import diff


def main(argv: list[str] | None = None) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(
        prog="python -m determined.pytorch.diff",
        description="Find where two runs part: on paper, by hashes of their checkpoints, and by "
        "training both again. Exit status 0: identical, 1: not.",
    )
    for name in ("first", "second"):
        parser.add_argument(
            name, metavar="CHECKPOINTS", help="a checkpoint, or the folder of a run's"
        )
    parser.add_argument("--json", action="store_true", help="for programs")
    options = parser.parse_args(argv)
    try:
        found = diff(options.first, options.second)
    except (DeterminedError, ValueError, RuntimeError, OSError) as error:
        parser.exit(2, f"{parser.prog}: {error}\n")
    text = json.dumps(found.as_json(), indent=2) if options.json else str(found)
    sys.stdout.write(f"{text}\n")
    return 0 if found.is_identical else 1


if __name__ == "__main__":
    sys.exit(main())
