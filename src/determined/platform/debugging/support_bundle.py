"""Everything about one trial in one archive, to find out what went wrong.

Secrets of the configuration are masked; the environment of the run is not part of it.
"""

from __future__ import annotations

import dataclasses
import io
import json
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from determined.config import masked, masked_hparams
from determined.platform.homes.home import Home
from determined.platform.queries.logs import LogFilter, read_logs
from determined.store import Reader, Trial

_MOST_OF_A_LOG = 50_000_000


def write_bundle(home: Home, reader: Reader, trial: Trial, folder: Path) -> Path:
    """Write `det-bundle-trial-ID-TIME.tar.gz` into a folder, whole or not at all."""
    name = f"det-bundle-trial-{trial.id}-{time.strftime('%Y%m%dT%H%M%S')}"
    folder.mkdir(parents=True, exist_ok=True)
    target, draft = folder / f"{name}.tar.gz", folder / f".{name}.draft"
    try:
        with tarfile.open(draft, "w:gz") as archive:
            for file, content in _files(home, reader, trial):
                entry = tarfile.TarInfo(f"{name}/{file}")
                entry.size, entry.mtime = len(content), int(time.time())
                archive.addfile(entry, io.BytesIO(content))
        draft.replace(target)
    finally:
        draft.unlink(missing_ok=True)
    return target


def _files(home: Home, reader: Reader, trial: Trial) -> Iterator[tuple[str, bytes]]:
    experiment = reader.experiment(trial.experiment_id)
    assert experiment is not None
    record = dataclasses.asdict(experiment) | {"config": masked(experiment.config)}
    del record["original_config"]  # may hold secrets as text
    runs = reader.runs(trial.id)
    yield "trial_logs.txt", _log(reader, trial)
    yield "master_logs.txt", _end_of(home.supervisor_log)
    yield "api_experiment_call.json", _json(record)
    yield (
        "api_trial_call.json",
        _json(
            {
                "trial": dataclasses.asdict(trial) | {"hparams": masked_hparams(trial.hparams)},
                "runs": [dataclasses.asdict(run) for run in runs],
                "events": [dataclasses.asdict(e) for e in reader.events(trial_id=trial.id)],
                "summary_metrics": {
                    group: {name: dataclasses.asdict(s) for name, s in metrics.items()}
                    for group, metrics in reader.metrics.summaries(trial.id).items()
                },
            }
        ),
    )
    for run in runs:
        path = Path(run.folder, "exit.json")
        if path.is_file():
            yield f"run-{run.run_id}/exit.json", path.read_bytes()


def _log(reader: Reader, trial: Trial) -> bytes:
    lines, size = [], 0
    for entry in read_logs(reader.runs(trial.id), LogFilter()):
        when = time.gmtime(entry.line.time or 0)
        text = (
            f"{time.strftime('%Y-%m-%dT%H:%M:%SZ', when)} run {entry.run_id} | {entry.line.text}\n"
        )
        size += len(text)
        lines.append(text)
        if size > _MOST_OF_A_LOG:
            lines.append("(the rest was left out)\n")
            break
    return "".join(lines).encode(errors="replace")


def _end_of(path: Path) -> bytes:
    if not path.exists():
        return b""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _MOST_OF_A_LOG))
        return file.read()


def _json(content: Any) -> bytes:
    return json.dumps(content, indent=2, sort_keys=True, default=str).encode()
