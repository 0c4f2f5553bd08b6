"""Whatever a power cut leaves of what was not flushed, `latest` finds a whole checkpoint."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any

import pytest

from determined.storage import SharedFSStorageManager
from tests.support.faults import draw_seed, factor
from tests.support.forks import Child
from tests.support.power_cut import Disk, Entry, Recorder, State, fingerprint, write_state
from tests.support.victims import Setup, Tell, preload, run
from tests.support.workers import run_workers

pytestmark = pytest.mark.multiprocess

DEADLINE_SECONDS = 110.0 + 120 * (factor() - 1)
# Two levels of folders that do not exist: these must survive, too.
STORAGE = "new/deep/storage"


def _record(setup: Setup, folder: Path, tell: Tell) -> list[Entry]:
    recorder = Recorder(folder)
    run(setup, folder, tell)
    return recorder.entries


class Checker:
    """Compares what is found after a power cut with what was saved."""

    def __init__(self, entries: list[Entry], root: Path) -> None:
        self._root = root
        self._saved: dict[str, dict[str, bytes]] = {}
        self._collect(entries)
        self.seen: set[str] = set()

    def _collect(self, entries: list[Entry]) -> None:
        stages: dict[str, dict[str, bytes]] = {}
        for kind, place, *rest in entries:
            if kind == "sync" and rest[0] is not None and place.startswith(f"{STORAGE}/."):
                stage, _, path = place.removeprefix(f"{STORAGE}/").partition("/")
                stages.setdefault(stage, {})[path] = rest[0]
            elif kind == "move" and ".tmp-" in place:
                stage = place.removeprefix(f"{STORAGE}/")
                self._saved[rest[0].removeprefix(f"{STORAGE}/")] = stages[stage]

    def check(self, state: State, acknowledged: list[str], what: str) -> bool:
        """Look at a state as the next run would; False if it was looked at before."""
        key = fingerprint(state) + "".join(acknowledged[-1:])
        if key in self.seen:
            return False
        self.seen.add(key)
        disk = self._root / "disk"
        write_state(state, disk)
        try:
            self._look(disk / STORAGE, acknowledged, what)
        finally:
            shutil.rmtree(disk)
        return True

    def _look(self, storage: Path, acknowledged: list[str], what: str) -> None:
        manager = SharedFSStorageManager(storage)
        order = list(self._saved)
        for folder in set(storage.glob("[!.]*")) - {storage / "hang-reports"}:
            assert manager.verify(folder.name), f"{what}: {folder.name} is torn"
        found = manager.latest("run")
        if found is None:
            assert not acknowledged, f"{what}: {acknowledged[-1]} was saved and is lost"
            return
        if acknowledged:
            assert order.index(found.storage_id) >= order.index(acknowledged[-1]), what
        files = found.manifest.contents.files
        for path, content in self._saved[found.storage_id].items():
            assert (storage / found.storage_id / path).read_bytes() == content, f"{what}: {path}"
            assert path in files or path == "manifest.json"


def _cut_power_everywhere(root: Path, setup: Setup, draws: int, seed: int) -> dict[str, Any]:
    preload()
    expected = Child(run, setup, root / "unbroken").result()
    (root / "recorded").mkdir()
    entries: list[Entry] = Child(_record, setup, root / "recorded").result()
    draw = random.Random(seed)
    checker, disk = Checker(entries, root), Disk(entries)
    kept: list[tuple[int, State]] = []
    for number in disk.replay():
        for state in disk.after_power_cut(draw, draws):
            what = f"seed {seed}, after entry {number} {entries[number][:2]}"
            if checker.check(state, disk.acknowledged, what) and draw.random() < 0.01:
                kept.append((number, state))
    resumed = draw.sample(kept, min(3, len(kept)))
    for number, state in resumed:
        folder = root / f"resumed-{number}"
        write_state(state, folder)
        ending = Child(run, setup, folder).result()
        assert ending == expected, f"seed {seed}, resumed after entry {number}"
    return {
        "entries": len(entries),
        "states": len(checker.seen),
        "saves": len(disk.acknowledged),
        "resumed": len(resumed),
    }


@pytest.mark.timeout(DEADLINE_SECONDS + 60)
@pytest.mark.parametrize("keep_latest", [None, 1], ids=["all kept", "older ones deleted"])
def test_a_whole_checkpoint_is_found_after_any_power_cut(
    tmp_path: Path, keep_latest: int | None
) -> None:
    seed = draw_seed(short=1)
    setup = Setup("mlp", batches=6, interval=2, keep_latest=keep_latest, storage=STORAGE)
    (seen,) = run_workers(
        1,
        _cut_power_everywhere,
        tmp_path,
        setup,
        4 * factor(),
        seed,
        process_group=False,
        deadline_seconds=DEADLINE_SECONDS,
    )
    print(seen)  # noqa: T201  # which the long form is run for
    assert seen["saves"] == 3
    assert seen["states"] > 200
