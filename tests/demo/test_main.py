"""`python -m determined.demo`: what it prints is what happened, and nothing stays behind."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from xml.etree import ElementTree

import psutil
import pytest

from determined.demo import __main__ as demo
from tests.support.waiting import eventually
from tools.demo_recording import PICTURE, essence, record


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_demo_kills_resumes_compares_and_searches(tmp_path: Path) -> None:
    folder = tmp_path / "a folder"
    code, lines = record(folder)
    shown = "\n".join(line.text for line in lines)
    assert code == 0, shown
    assert shown.count("Killed") == 3
    assert len(re.findall(r"^  resumed batch=\d+/900", shown, re.MULTILINE)) == 3
    hashes = re.findall(r"^  weights: (\w{16})$", shown, re.MULTILINE)
    assert len(hashes) == 2
    assert f"The same weights, bit for bit: {hashes[0]}" in shown
    assert "Best accuracy" in shown
    assert "The search found a better net: accuracy 0.9" in shown
    assert f"export DET_HOME='{folder}/home'" in shown
    texts = [line.text.replace("'", "") for line in lines]
    assert essence(texts, folder) == essence(picture_lines()[1:]), "python -m tools.demo_recording"
    eventually(lambda: not any(uses(process, folder) for process in psutil.process_iter()))


def picture_lines() -> list[str]:
    texts = ElementTree.parse(PICTURE).iter("{http://www.w3.org/2000/svg}text")
    return ["".join(text.itertext()) for text in texts if text.get("class") != "title"]


def test_the_picture_of_the_demo_needs_nothing_from_elsewhere_and_runs_nothing() -> None:
    content = PICTURE.read_text()
    assert len(content) < 30_000
    names = {element.tag.partition("}")[2] for element in ElementTree.parse(PICTURE).iter()}
    assert names == {"svg", "title", "style", "rect", "circle", "text", "tspan", "g"}
    assert "://" not in content.replace("http://www.w3.org/2000/svg", "")
    assert not re.search(r"\bon\w+=|href|@import|url\(", content)
    assert picture_lines()[0] == "$ python -m determined.demo"


def test_second_demo_in_a_folder_does_not_continue_the_first(tmp_path: Path) -> None:
    assert demo._next_number(tmp_path) == 1
    (tmp_path / "undisturbed-1.log").touch()
    (tmp_path / "undisturbed-10.log").touch()
    assert demo._next_number(tmp_path) == 11


def uses(process: psutil.Process, folder: Path) -> bool:
    try:
        return any(str(folder) in word for word in process.cmdline())
    except psutil.Error:
        return False


def test_weights_that_differ_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    files = tmp_path / "files"
    shutil.copytree(demo._FILES, files)
    (files / "train.py").write_text(
        "import os\n"
        "for epoch in range(1, 21):\n"
        "    print(f'validation batch={epoch * 45}/900 accuracy=0.5', flush=True)\n"
        "print('weights:', os.urandom(8).hex())\n"
    )
    monkeypatch.setattr(demo, "_FILES", files)
    assert demo.main(["--folder", str(tmp_path / "demo")]) == 1
    assert "The weights differ" in capsys.readouterr().err


def test_script_that_fails_is_told_with_its_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    files = tmp_path / "files"
    shutil.copytree(demo._FILES, files)
    (files / "train.py").write_text("raise SystemExit('no such image')")
    monkeypatch.setattr(demo, "_FILES", files)
    assert demo.main(["--folder", str(tmp_path / "demo")]) == 1
    log = tmp_path / "demo" / "digits" / "undisturbed-1.log"
    assert str(log) in capsys.readouterr().err
    assert "no such image" in log.read_text()


def test_folder_that_cannot_be_written_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    assert demo.main(["--folder", str(tmp_path / "file")]) == 1
    assert f"--folder {tmp_path / 'file'}: cannot write there" in capsys.readouterr().err


@pytest.mark.parametrize(("best", "word"), [(0.96, "found a better net"), (0.95, "none better")])
def test_verdict_says_whether_the_search_helped(best: float, word: str) -> None:
    assert word in demo._verdict(best, 0.95)
