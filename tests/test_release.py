"""The wheel and the sdist: what is in them, and that they run in an empty environment."""

from __future__ import annotations

import email
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest

import determined

ROOT = Path(__file__).parents[1]
VERSION = determined.__version__
pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

_BUILD = "import sys, setuptools.build_meta as b; getattr(b, 'build_' + sys.argv[1])(sys.argv[2])"


def test_wheel_and_sdist_are_whole_and_run_in_an_empty_environment(tmp_path: Path) -> None:
    sdist = build("sdist", copy_of_the_tree(tmp_path / "tree"), tmp_path)
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    unpacked = tmp_path / f"determined_pytorch-{VERSION}"
    for name in ("CHANGELOG.md", "LICENSE", "README.md", "SECURITY.md", "pyproject.toml"):
        assert (unpacked / name).is_file(), name
    assert not (unpacked / "tests").exists()

    wheel = build("wheel", unpacked, tmp_path)
    with zipfile.ZipFile(wheel) as content:
        names = set(content.namelist())
        metadata = email.message_from_bytes(content.read(information("METADATA")))
    packed = {name for name in names if not name.startswith(information(""))}
    assert packed == files_of_the_package() | pages_of_the_documentation()
    assert {"determined/py.typed", "determined/dashboard/static/index.html"} <= packed
    assert information("licenses/LICENSE") in names
    assert metadata["Version"] == VERSION
    assert metadata.get_all("Project-URL") is None  # there are none to name
    assert {"dashboard", "optuna", "ray"} <= set(metadata.get_all("Provides-Extra") or [])

    python = install(wheel, tmp_path / "environment")
    told = run(python, "-c", "import determined; print(determined.__file__)")
    assert told.startswith(str(tmp_path / "environment"))
    let_it_see_our_packages(tmp_path / "environment")
    assert VERSION in run(python.with_name("det"), "version")
    ask = "from determined.mcp import pages; print(pages.folder(), pages.read('howto/resume.md'))"
    answer = run(python, "-c", ask)
    assert answer.startswith(str(tmp_path / "environment"))
    assert "# How do I resume a run?" in answer


def test_the_page_on_installing_names_every_extra() -> None:
    page = (ROOT / "docs" / "install.md").read_text()
    section = (ROOT / "pyproject.toml").read_text().partition("[project.optional-dependencies]")[2]
    lines = section.partition("\n[")[0].splitlines()
    extras = [line.partition(" = ")[0] for line in lines if " = [" in line]
    assert "dashboard" in extras
    assert [extra for extra in extras if f"`{extra}`" not in page] == []


def test_every_path_that_contributors_are_sent_to_exists() -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text()
    paths = re.findall(r"`((?:src|tests|docs|examples|benchmarks|tools)/[\w./]*)`", page)
    assert len(paths) > 20
    assert [path for path in paths if not (ROOT / path).exists()] == []


def information(name: str) -> str:
    return f"determined_pytorch-{VERSION}.dist-info/{name}"


def files_of_the_package() -> set[str]:
    package = Path(determined.__file__).parent
    return {
        str(path.relative_to(package.parent))
        for path in package.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def pages_of_the_documentation() -> set[str]:
    docs = ROOT / "docs"
    pages = [docs / "llms.txt", *docs.rglob("*.md")]
    return {f"determined/mcp/pages/{page.relative_to(docs).as_posix()}" for page in pages}


def copy_of_the_tree(target: Path) -> Path:
    """What a build reads, so that it leaves nothing in the repository."""
    unwanted = shutil.ignore_patterns("__pycache__", "*.egg-info")
    shutil.copytree(ROOT / "src", target / "src", ignore=unwanted)
    shutil.copytree(ROOT / "docs", target / "docs")
    shutil.copytree(ROOT / "tests" / "examples", target / "tests", ignore=unwanted)
    for path in ROOT.iterdir():
        if path.is_file():
            shutil.copy2(path, target)
    return target


def build(kind: str, source: Path, target: Path) -> Path:
    command = [sys.executable, "-c", _BUILD, kind, str(target)]
    built = subprocess.run(command, cwd=source, capture_output=True, text=True, timeout=200)
    assert built.returncode == 0, built.stdout + built.stderr
    ending = {"sdist": ".tar.gz", "wheel": ".whl"}[kind]
    (found,) = target.glob(f"*{ending}")
    return found


def install(wheel: Path, environment: Path) -> Path:
    """Install the wheel alone into a new environment; return its Python."""
    python = environment / "bin" / "python"
    run(Path(sys.executable), "-m", "venv", "--without-pip", str(environment))
    pip = ["-m", "pip", "--python", str(python), "--disable-pip-version-check", "install"]
    run(Path(sys.executable), *pip, "--no-deps", "--no-index", "--no-compile", str(wheel))
    return python


def let_it_see_our_packages(environment: Path) -> None:
    """Have the dependencies without installing them again; ours are looked at last."""
    (site,) = environment.glob("lib/python*/site-packages")
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")


def run(program: Path, *words: str) -> str:
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    ran = subprocess.run([program, *words], env=clean, capture_output=True, text=True, timeout=200)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout
