"""Train batches of a trial again, and compare them with its record; the experiment stays as it is.

A span may be cut at checkpoints into intervals, each of which a process of its own trains. What a
replay reports is published at its end, as a whole, in the experiment's folder.
"""

from __future__ import annotations

import json
import shutil
import threading
import time
import uuid as uuids
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from determined._contracts.replay_check import Checked, check_replay
from determined._contracts.replay_span import (
    ENVIRONMENT,
    METRICS,
    RECORD,
    REPLAY,
    REPLAY_VARIABLE,
    ReplaySpan,
    read_record,
)
from determined._contracts.run_diff import Point
from determined._info import FORK_FILE
from determined._os.json_file import write_json
from determined._os.together import run_together
from determined.errors import RefusedError
from determined.platform.debugging.debug_run import Debug, latest_checkpoint, prepare
from determined.platform.homes.home import Home
from determined.platform.queries.downloads import storage_of
from determined.platform.queries.run_record import hashes_of, points_of, rows_of
from determined.store import Experiment, Reader, Trial


@dataclass(frozen=True)
class Interval:
    """Batches that one process trains again, after the checkpoint `start` (None: the beginning)."""

    first: int
    last: int
    start: Point | None

    @property
    def after(self) -> int:
        """The batch that it starts after."""
        return 0 if self.start is None else self.start.batch

    def __str__(self) -> str:
        where = "the beginning" if self.start is None else f"checkpoint {self.start.name}"
        again = self.first - 1 - self.after
        rest = f", {again} batches before them" if again else ""
        return f"batches {self.first}:{self.last} from {where} at batch {self.after}{rest}"


@dataclass(frozen=True)
class Replayed:
    """What came of a replay: how far it equals the record, and the rows that it reported."""

    trial_id: int
    checked: Checked
    rows: Sequence[Mapping[str, Any]]
    environment: Sequence[str]
    """How the environment differs from the trial's, in words."""

    def __str__(self) -> str:
        lines = [f"The environment differs from the trial's: {text}" for text in self.environment]
        return "\n".join([*lines, str(self.checked)])


class Replays:
    """The replays of one trial."""

    def __init__(self, reader: Reader, home: Home, trial: Trial, experiment: Experiment) -> None:
        self._reader = reader
        self._home = home
        self._trial = trial
        self._experiment = experiment
        self.points = points_of(reader, trial)
        _refuse_unmanaged(reader, trial, experiment)

    @property
    def slots(self) -> int:
        """How many processes train it."""
        return max(1, self._experiment.configuration.resources.slots_per_trial)

    def plan(self, first: int, last: int, processes: int = 1) -> list[Interval]:
        """Return what to train for some batches: at most as many intervals as processes.

        They are cut at the checkpoints that make them most alike in length: starting a process
        takes some seconds, so more of them would gain nothing.
        """
        fork = self._reader.forks.fork(self._trial.id)
        trained = max([self._trial.total_batches, *(point.batch for point in self.points)])
        if not 1 <= first <= last <= trained:
            raise RefusedError(
                f"--batches: expected A:B with 1 <= A <= B <= {trained}, which is how far trial "
                f"{self._trial.id} has trained, got {first}:{last}."
            )
        usable = [point for point in self.points if point.has_files]
        start = next((point for point in reversed(usable) if point.batch < first), None)
        if fork is not None and start is None:
            raise RefusedError(
                f"Trial {self._trial.id} is a fork of trial {fork.parent_trial_id} at batch "
                f"{fork.at}, and has no checkpoint before batch {first}: replay the batches up to "
                f"{fork.at} of trial {fork.parent_trial_id}."
            )
        after = 0 if start is None else start.batch
        among = [point for point in usable if first <= point.batch < last]
        wanted = [after + i * (last - after) / processes for i in range(1, processes)]
        cuts = {min(among, key=lambda p: abs(p.batch - at)).batch for at in wanted if among}
        inside = [point for point in among if point.batch in cuts]
        starts = [start, *inside]
        firsts = [first, *(point.batch + 1 for point in inside)]
        lasts = [*(point.batch for point in inside), last]
        return [Interval(*one) for one in zip(firsts, lasts, starts, strict=True)]

    def prepare(self, interval: Interval, folder: Path, **told: Any) -> tuple[Debug, ReplaySpan]:
        """Lay out a process that trains an interval, in an empty folder."""
        point = interval.start
        start = None if point is None else self._reader.checkpoint(point.name)
        ready = prepare(
            self._reader,
            self._home,
            self._trial,
            self._experiment,
            folder,
            from_beginning=start is None,
            start=start,
            slots=self.slots,
        )
        checkpoints = folder / "checkpoints"
        checkpoints.mkdir(exist_ok=True)
        span = ReplaySpan(
            interval.first,
            interval.last,
            None if start is None else str(checkpoints / start.uuid),
            str(checkpoints),
            str(folder / RECORD),
            **told,
        )
        span.save(folder / "span.json")
        ready.environment[REPLAY_VARIABLE] = str(folder / "span.json")
        self._tell_of_fork(folder)
        return ready, span

    def run(
        self,
        intervals: Sequence[Interval],
        folder: Path,
        *,
        callbacks: Sequence[str] = (),
        paths: Sequence[str] = (),
        pdb: bool = False,
        processes: int = 1,
    ) -> Replayed:
        """Train intervals again, at most so many at a time; one alone has this terminal."""
        if pdb and self.slots > 1:
            raise RefusedError(
                f"Trial {self._trial.id} is trained by {self.slots} processes, which have no "
                "terminal of their own: replay it without the debugger."
            )

        def train(numbered: tuple[int, Interval]) -> ReplaySpan:
            number, interval = numbered
            place = folder / str(number)
            place.mkdir()
            told = {"callbacks": tuple(callbacks), "paths": tuple(paths), "pdb": pdb}
            ready, span = self.prepare(interval, place, **told)
            has_terminal = threading.current_thread() is threading.main_thread()
            logged = ready.logged(place / "log")
            code = ready.run() if has_terminal else run_together([logged])[0]
            if code:
                said = logged.last_output()
                raise RefusedError(f"The replay of {interval} ended with exit code {code}.\n{said}")
            shutil.rmtree(place / "checkpoints", ignore_errors=True)
            return span

        if len(intervals) == 1:
            spans = [train((0, intervals[0]))]
        else:
            with ThreadPoolExecutor(processes) as pool:
                spans = list(pool.map(train, enumerate(intervals)))
        return self._compare(intervals, spans)

    def publish(self, replayed: Replayed, intervals: Sequence[Interval]) -> str:
        """Keep the rows of a replay: all of them or, if this is interrupted, none; return its id.

        They lie beside the experiment's other files, where no search and no summary looks.
        """
        number = str(uuids.uuid4())
        folder = replays_folder(self._home, self._experiment)
        folder.mkdir(parents=True, exist_ok=True)
        content = {
            "id": number,
            "group": REPLAY,
            "trial_id": self._trial.id,
            "batches": [intervals[0].first, intervals[-1].last],
            "time": time.time(),
            "verdict": str(replayed.checked),
            "is_identical": replayed.checked.departure is None,
            "rows": list(replayed.rows),
        }
        write_json(folder / f"{number}.json", content, durable=True)
        return number

    def _compare(self, intervals: Sequence[Interval], spans: Sequence[ReplaySpan]) -> Replayed:
        hashes, rows, said = hashes_of(self.points), list[Mapping[str, Any]](), dict[str, None]()
        checked = Checked(intervals[0].after, 0, 0)
        for interval, span in zip(intervals, spans, strict=True):
            entries = list(read_record(Path(span.record)))
            known = rows_of(self._reader, self._trial, interval.after + 1, interval.last)
            one = check_replay(interval.after, interval.last, entries, known, hashes)
            if checked.departure is None:
                counts = checked.rows + one.rows, checked.checkpoints + one.checkpoints
                checked = replace(one, rows=counts[0], checkpoints=counts[1])
            for entry in entries:
                if entry["kind"] == METRICS and interval.first <= entry["steps"] <= interval.last:
                    rows.append({k: v for k, v in entry.items() if k != "kind"})
                elif entry["kind"] == ENVIRONMENT:
                    said |= dict.fromkeys(entry["differences"])
        return Replayed(self._trial.id, checked, rows, list(said))

    def _tell_of_fork(self, folder: Path) -> None:
        fork = self._reader.forks.fork(self._trial.id)
        if fork is None:
            return
        told = {
            "at": fork.at,
            "name": f"trial {fork.trial_id}",
            "changed": fork.changed,
            "seed": fork.seed,
            "ends_at": None,
            "is_check": False,
            "overrides": None,
        }
        write_json(folder / "info" / FORK_FILE, told)


def _refuse_unmanaged(reader: Reader, trial: Trial, experiment: Experiment) -> None:
    """Say how batches of a script that was started by hand are trained again."""
    if not experiment.unmanaged:
        return
    newest = latest_checkpoint(reader, trial)
    place = "CHECKPOINT"
    if newest is not None:
        place = str(Path(storage_of(newest, experiment).location, newest.uuid))
    raise RefusedError(
        f"Trial {trial.id} is unmanaged: its script was started by hand. Use `python -m "
        f"determined.pytorch.replay {place}` or `python -m determined.pytorch.diff {place} OTHER`, "
        "which start it as it was started."
    )


def replays_folder(home: Home, experiment: Experiment) -> Path:
    """Where published replays of an experiment's trials are."""
    return home.experiment(experiment.id) / "replays"


def published(home: Home, experiment: Experiment, trial_id: int) -> Iterator[dict[str, Any]]:
    """Yield the replays of a trial that were published, oldest first."""
    found = [
        json.loads(path.read_text()) for path in replays_folder(home, experiment).glob("*.json")
    ]
    yield from sorted((r for r in found if r["trial_id"] == trial_id), key=lambda r: r["time"])
