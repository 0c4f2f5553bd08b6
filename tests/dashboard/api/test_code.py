"""The code of experiments, and the difference of two."""

from __future__ import annotations

import io
import tarfile

from tests.dashboard.served import Served


def test_code_is_shown_and_compared(shown: Served) -> None:
    files = shown.json("/api/experiments/1/code")["files"]
    assert {"path": "weights/tiny.bin", "size": 4} in files
    text = shown.json("/api/experiments/1/code/file", path="train.py")
    assert text["text"].startswith("import determined")
    binary = shown.json("/api/experiments/1/code/file", path="weights/tiny.bin")
    assert (binary["text"], binary["binary"]) == (None, True)
    archive = shown.client.get("/api/experiments/1/code/download").content
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        assert "train.py" in tar.getnames()
    diff = shown.json("/api/experiments/1/diff", other=2)
    assert "-name: digits-adaptive" in diff["config"]
    assert diff["code"] == []
    assert diff["hparams"]["lr"][1]["vals"] == [0.001, 0.01, 0.9]
