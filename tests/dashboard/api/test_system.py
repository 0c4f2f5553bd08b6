"""Charts of the machine, and profiles."""

from __future__ import annotations

from determined.dashboard.endpoints.encoding import dump
from tests.dashboard.served import Served


def test_the_machine_is_drawn_with_its_extremes(shown: Served) -> None:
    charts = {c["title"]: c for c in shown.json("/api/trials/1/system", px=3)["charts"]}
    assert {"CPU", "Free memory", "Network", "GPU", "Disk in use"} <= charts.keys()
    (cpu,) = charts["CPU"]["series"]
    assert len(cpu["x"]) <= 3 < charts["CPU"]["total"]
    assert all(a <= b <= c for a, b, c in zip(cpu["min"], cpu["y"], cpu["max"], strict=True))
    assert "not profiled" in shown.json("/api/trials/1/profile")["note"]


def test_a_profile_is_shown_where_there_is_one(shown: Served) -> None:
    folder = shown.home.tensorboard / "2"
    folder.mkdir(parents=True)
    part = {"seconds": 3.0, "share": 0.75, "calls": 10}
    content = {"parts": {"data": part}, "other_share": 0.25, "wall_seconds": 4.0}
    (folder / "profile.json").write_bytes(dump(content | {"advice": ["Rest."], "batches": 10}))
    found = shown.json("/api/trials/2/profile")
    assert [(row["what"], row["seconds"]) for row in found["rows"]] == [
        ("data", 3.0),
        ("other", 1.0),
    ]
    assert found["advice"] == ["Rest."]
    (folder / "profile.json").write_text("{")
    assert "cannot be read" in shown.json("/api/trials/2/profile")["note"]
