from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from determined.tensorboard import get_base_path, get_rank_aware_path


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("host.123.pt.trace.json", "host#3.123.pt.trace.json"),
        ("host.local_77.123.pt.trace.json.gz", "host.local_77#3.123.pt.trace.json.gz"),
        ("host.pt.trace.json", "host#3.pt.trace.json"),
        ("host.trace.json.gz", "host#3.trace.json.gz"),
        ("host.xplane.pb", "host#3.xplane.pb"),
        ("host.memory_profile.json.gz", "host#3.memory_profile.json.gz"),
        ("host.kernel_stats.pb", "host#3.kernel_stats.pb"),
        ("events.out.tfevents.1.host.2.0", "events.out.tfevents.1.host.2.0"),
        ("notes.json", "notes.json"),
    ],
)
def test_profiler_files_carry_their_rank(name: str, expected: str) -> None:
    assert (
        get_rank_aware_path(Path("plugins/profile") / name, 3) == Path("plugins/profile") / expected
    )


@pytest.mark.parametrize(
    ("environment", "name"),
    [
        ({}, "tensorboard--0"),
        ({"DET_ALLOCATION_ID": "a.1", "HOROVOD_RANK": "2"}, "tensorboard-a.1-2"),
        ({"DET_ALLOCATION_ID": "a.1", "RANK": "3"}, "tensorboard-a.1-3"),
    ],
)
def test_every_rank_has_its_own_directory(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], name: str
) -> None:
    for variable in ("DET_ALLOCATION_ID", "RANK", "HOROVOD_RANK"):
        monkeypatch.delenv(variable, raising=False)
    for variable, value in environment.items():
        monkeypatch.setenv(variable, value)
    assert get_base_path({}) == Path(tempfile.gettempdir()) / name
    assert get_base_path(checkpoint_config={"base_path": "/data"}) == Path("/data") / name
