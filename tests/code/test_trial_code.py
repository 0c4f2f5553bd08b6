"""Which directory is copied into checkpoints, and how the class is imported from it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from determined._code.trial_code import TrialCode, find_trial_code

_TELL = """
import dataclasses, json
from determined._code.trial_code import find_trial_code
class Mine:
    class Inner: pass
if __name__ == "__main__":
    print(json.dumps(dataclasses.asdict(find_trial_code(Mine.Inner)), default=str))
"""


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def tell(*command: str, cwd: Path, home: Path | None = None) -> TrialCode:
    environment = {**os.environ, "HOME": str(home or "/nowhere")}
    answer = subprocess.run(
        [sys.executable, *command],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert answer.returncode == 0, answer.stderr
    found = json.loads(answer.stdout)
    return TrialCode(Path(found["source"]), found["import_root"], found["spec"])


def test_a_script_in_the_working_directory_is_copied_with_it(tmp_path: Path) -> None:
    write(tmp_path, {"train.py": _TELL})
    assert tell("train.py", cwd=tmp_path) == TrialCode(tmp_path, ".", "train:Mine.Inner")


def test_a_script_below_the_working_directory_is_found_in_the_copy(tmp_path: Path) -> None:
    write(tmp_path, {"jobs/train.py": _TELL})
    found = tell("jobs/train.py", cwd=tmp_path)
    assert found == TrialCode(tmp_path, "jobs", "train:Mine.Inner")


def test_a_script_elsewhere_is_copied_with_its_own_directory(tmp_path: Path) -> None:
    project, elsewhere = write(tmp_path / "project", {"train.py": _TELL}), tmp_path / "elsewhere"
    elsewhere.mkdir()
    for script in (str(project / "train.py"), "../project/train.py"):
        found = tell(script, cwd=elsewhere)
        assert found == TrialCode(project, ".", "train:Mine.Inner")


def test_a_link_to_a_script_stands_for_it(tmp_path: Path) -> None:
    project = write(tmp_path / "project", {"train.py": _TELL})
    (tmp_path / "link.py").symlink_to(project / "train.py")
    found = tell("link.py", cwd=tmp_path)
    assert found == TrialCode(tmp_path, "project", "train:Mine.Inner")


def test_a_module_run_by_name_keeps_its_package(tmp_path: Path) -> None:
    write(tmp_path, {"jobs/train.py": _TELL})
    found = tell("-m", "jobs.train", cwd=tmp_path)
    assert found == TrialCode(tmp_path, ".", "jobs.train:Mine.Inner")


def test_the_home_directory_is_not_copied_for_a_project_in_it(tmp_path: Path) -> None:
    home = write(tmp_path / "home", {"project/train.py": _TELL})
    for cwd in (home, tmp_path):
        found = tell(os.path.relpath(home / "project/train.py", cwd), cwd=cwd, home=home)
        assert found == TrialCode(home / "project", ".", "train:Mine.Inner")


def test_imported_modules_and_packages_are_traced_to_their_root(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "src", {"det_x/__init__.py": "class A: pass", "det_x/y.py": "class B: pass"})
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path / "src"))
    import det_x  # type: ignore[import-not-found]  # written just now
    import det_x.y  # type: ignore[import-not-found]

    try:
        assert find_trial_code(det_x.A) == TrialCode(tmp_path, "src", "det_x:A")
        assert find_trial_code(det_x.y.B) == TrialCode(tmp_path, "src", "det_x.y:B")
    finally:
        del sys.modules["det_x"], sys.modules["det_x.y"]


def test_installed_and_typed_in_classes_leave_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert Path(pytest.__file__).is_relative_to(sysconfig.get_path("purelib"))
    assert find_trial_code(pytest.MonkeyPatch) == TrialCode(tmp_path)
    typed = type("Typed", (), {"__module__": "no_such_module"})
    assert find_trial_code(typed) == TrialCode(tmp_path)
