"""Folders, arguments and files whose names are no text, in a locale that knows ASCII only."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import pathlib, sys
from determined import pytorch
from tests.support.trials import LineTrial

class Net(LineTrial):
    pass

def main():
    storage = pathlib.Path("stor\\udcff").absolute()
    with pytorch.init(checkpoint_storage=storage, seed=1, hparams={"a": "\\u20ac"}) as context:
        context.get_tensorboard_writer().add_scalar("mine", 1.0, 1)
        trainer = pytorch.Trainer(Net(context), context)
        trainer.fit(max_length=pytorch.Epoch(int(sys.argv[3])), latest_checkpoint="latest",
                    export="safetensors", profiling_enabled=True)
    print(type(pytorch.load_trial_from_checkpoint_path(trainer.latest_checkpoint)).__name__)

if __name__ == "__main__":
    main()
"""
ASCII_ONLY = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
UTF8 = {"LC_ALL": "C.UTF-8", "PYTHONUTF8": "1"}


def python(folder: bytes, environment: dict[str, str], *arguments: bytes | str) -> str:
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env={
            **os.environ,
            "PYTHONPATH": str(Path(__file__).parents[2]),
            "DET_PROGRESS": "on",
            **environment,
        },
        capture_output=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr.decode(errors="replace")
    return (done.stdout + done.stderr).decode(errors="replace")


@pytest.mark.multiprocess
@pytest.mark.parametrize(
    "environment",
    [
        pytest.param(ASCII_ONLY, id="ascii"),
        pytest.param(UTF8, id="utf8", marks=pytest.mark.slow),  # the rarer trouble
    ],
)
def test_training_works_where_names_are_no_text(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    folder = os.fsencode(tmp_path) + b"/caf\xe9\xff-\xc3\xa4"
    os.mkdir(folder)  # noqa: PTH102  # a path of bytes
    (Path(os.fsdecode(folder)) / "train.py").write_text(SCRIPT)
    (Path(os.fsdecode(folder)) / "conf\udcff.yaml").write_text("a: 1\n")
    first = python(folder, environment, "train.py", b"arg\xe9", "--epochs", "1")
    assert "Trained     3 batches" in first
    assert "Net" in first
    second = python(folder, environment, "train.py", b"arg\xe9", "--epochs", "2")
    assert "resumed batch=3/6" in second
    listed = python(folder, environment, "-m", "determined.pytorch.runs", b"stor\xff")
    assert listed.splitlines()[1].startswith("train-arg-seed-1-")
    (code,) = {path.name for path in Path(os.fsdecode(folder)).rglob("code/conf*")}
    assert code == "conf\udcff.yaml"
