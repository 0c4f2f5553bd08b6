"""Checkpoints: their list, and the download of one."""

from __future__ import annotations

import io
import tarfile

from tests.dashboard.served import Served


def test_a_checkpoint_is_downloaded_whole(shown: Served) -> None:
    rows = shown.json("/api/experiments/1/checkpoints", limit=1000)
    assert rows["total"] == len(rows["rows"])
    times = [row["time"] for row in rows["rows"]]
    assert times == sorted(times, reverse=True)
    registered = [row for row in rows["rows"] if row["registered"]]
    assert {"model": "digits-net", "version": 1} in [
        r for row in registered for r in row["registered"]
    ]
    row = rows["rows"][0]
    content = shown.client.get(f"/api/checkpoints/{row['uuid']}/download").content
    with tarfile.open(fileobj=io.BytesIO(content)) as tar:
        sizes = {member.name.split("/", 1)[1]: member.size for member in tar.getmembers()}
    assert sizes == row["files"]
    trial = shown.json("/api/trials/1/checkpoints")
    assert all(row["trial_id"] == 1 for row in trial["rows"])
    assert shown.client.get("/api/checkpoints/nope/download").status_code == 404
