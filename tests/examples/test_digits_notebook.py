"""The notebook of the digits example runs from top to bottom, and shows what it says."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from determined.experimental.client import Determined
from tests.examples.running import EXAMPLES
from tests.support.lab import Lab, lab

__all__ = ["lab"]
pytestmark = [pytest.mark.slow, pytest.mark.multiprocess, pytest.mark.timeout(400)]

# In a process of its own, so that the kernel's threads and sockets are gone with it.
_RUN = """
import nbformat
from nbclient import NotebookClient

notebook = nbformat.read("search.ipynb", 4)
try:
    NotebookClient(notebook, timeout=300, kernel_name="python3").execute()
finally:
    nbformat.write(notebook, "done.ipynb")
"""


def test_the_notebook_searches_compares_loads_and_registers(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DET_HOME", str(lab.home.path))
    monkeypatch.delenv("DET_STORAGE")
    folder = lab.folder / "digits"
    shutil.copytree(Path(EXAMPLES, "digits"), folder)
    command = [sys.executable, "-W", "ignore", "-c", _RUN]
    ran = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=350)
    assert ran.returncode == 0, ran.stderr[-3000:] + lab.account()
    shown = list(_outputs(json.loads((folder / "done.ipynb").read_text())))
    pages = [str(data.get("text/html", "")) for data in shown]
    assert any("<progress value='1.0000'" in page for page in pages)
    assert any("hparams.learning_rate" in page for page in pages)
    (figure,) = [d["application/vnd.plotly.v1+json"] for d in shown if _has_figure(d)]
    assert [trace["type"] for trace in figure["data"]] == ["scatter"] * 3 + ["parcoords"]
    assert any("held-out digits are right" in str(data) for data in shown)

    det = Determined(home=lab.home.path)
    version = det.get_model("digits").get_version()
    assert version is not None
    assert version.notes.startswith("learning rate")
    assert version.checkpoint == det.get_experiment(1).list_checkpoints(max_results=1)[0]
    version.checkpoint.add_metadata({"note": "of the notebook"})
    with pytest.warns(FutureWarning, match="use pytorch.load_trial_from_checkpoint_path"):
        trial = version.checkpoint.load(str(lab.folder / "copy"))
    assert type(trial).__name__ == "DigitsTrial"
    metadata = json.loads((lab.folder / "copy" / "metadata.json").read_text())
    assert metadata["note"] == "of the notebook"


def _outputs(notebook: Any) -> Iterator[dict[str, Any]]:
    for cell in notebook["cells"]:
        for output in cell.get("outputs", ()):
            yield output.get("data", {"text": output.get("text", "")})


def _has_figure(data: dict[str, Any]) -> bool:
    return "application/vnd.plotly.v1+json" in data
