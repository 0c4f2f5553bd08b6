"""The command that lists the runs of a storage: `python -m determined.pytorch.runs [STORAGE]`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from determined.core._checkpoint import _build_storage
from determined.errors import DeterminedError
from determined.pytorch._identity.identity import file_name
from determined.storage import StorageManager
from determined.storage._runs import StoredRun, list_runs
from determined.storage.local.run_lock import live_holder

_HEADER = ("run", "batches", "checkpoints", "MB", "last saved", "state", "arguments")


def main(argv: list[str] | None = None) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(
        prog="python -m determined.pytorch.runs",
        description="List the runs in a checkpoint storage, most recently saved first. "
        'Continue one with pytorch.init(run_id="...") and fit(latest_checkpoint="latest").',
    )
    parser.add_argument(
        "storage",
        nargs="?",
        metavar="STORAGE",
        help="a path or URL; by default DET_STORAGE, else the user's data directory",
    )
    options = parser.parse_args(argv)
    try:
        storage = _build_storage(options.storage)
        if storage.base_path is not None and not storage.base_path.exists():
            raise ValueError(f"{storage.location} does not exist.")
        runs = list_runs(storage)
    except (DeterminedError, ValueError, OSError, ImportError) as e:
        parser.exit(2, f"{parser.prog}: {e}\n")
    if not runs:
        _say(f"There are no runs in {storage.location}.")
        return 0
    for line in _table([_HEADER, *(_row(run, storage) for run in runs)]):
        _say(line)
    return 0


def _say(line: str) -> None:
    encoding = sys.stdout.encoding or "utf-8"  # names may hold what a terminal does not know
    sys.stdout.write(line.encode(encoding, errors="replace").decode(encoding) + "\n")


def _row(run: StoredRun, storage: StorageManager) -> tuple[str, ...]:
    holder = live_holder(storage.base_path, storage.location, file_name(run.run_id))
    state = "" if holder is None else f"training (pid {holder.get('pid')} on {holder.get('host')})"
    arguments = run.facts.get("arguments") or []
    return (
        run.run_id,
        str(run.batches),
        str(len(run.checkpoints)),
        f"{run.size_bytes / 1e6:.1f}",
        run.newest.manifest.created,
        state,
        " ".join(map(str, arguments)),
    )


def _table(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]


if __name__ == "__main__":
    sys.exit(main())
