"""The targets of the Makefile, as from a fresh clone: what each one runs, its environment has."""

from __future__ import annotations

import ast
import importlib.metadata
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

_ROOT = Path(__file__).parents[1]
_TARGETS = re.findall(r"^\.PHONY: (.+)$", (_ROOT / "Makefile").read_text(), re.MULTILINE)[0].split()
_OURS = "determined-pytorch"


@cache
def commands(target: str) -> tuple[str, ...]:
    """What a target would run if nothing were installed yet."""
    variables = ["VENV=.absent", "BENCH=.absent-bench", "PEERS_VENV=.absent-peers"]
    answer = subprocess.run(
        ["make", "-n", target, *variables], cwd=_ROOT, capture_output=True, text=True, check=True
    )
    return tuple(answer.stdout.replace("\\\n", " ").splitlines())


def installed(target: str, environment: str) -> set[str]:
    """The distributions that a target installs into one of its environments, with all they need."""
    found: set[str] = set()
    for line in commands(target):
        place, is_pip, rest = line.partition("/bin/python -m pip install")
        if is_pip and place.split()[-1].strip("'\"") == environment:
            words = [word.strip("'") for word in re.split(r"\s+", rest) if word]
            for position, word in enumerate(words):
                if word.startswith("-") or (position and words[position - 1] == "-c"):
                    continue
                found |= needed(word.replace(".[", f"{_OURS}["))
    return found


@cache
def needed(requirement: str) -> frozenset[str]:
    wanted = Requirement(requirement)
    found, waiting = set(), [(canonicalize_name(wanted.name), frozenset(wanted.extras))]
    seen = set()
    while waiting:
        name, extras = waiting.pop()
        if (name, extras) in seen:
            continue
        seen.add((name, extras))
        found.add(name)
        try:
            requires = importlib.metadata.requires(name) or []
        except importlib.metadata.PackageNotFoundError:
            continue
        for text in requires:
            part = Requirement(text)
            if part.marker is None or any(
                part.marker.evaluate({"extra": extra}) for extra in ("", *extras)
            ):
                waiting.append((canonicalize_name(part.name), frozenset(part.extras)))
    return frozenset(found)


def module_file(name: str) -> Path | None:
    path = _ROOT / name.replace(".", "/")
    for candidate in (path.with_suffix(".py"), path / "__init__.py"):
        if candidate.exists():
            return candidate
    return None


def imports(file: Path) -> Iterator[str]:
    """What a module imports whenever it is imported itself."""
    for node in ast.parse(file.read_text()).body:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def reached(module: str) -> set[Path]:
    """The files of a module and of those that it imports, also by name: its whole package."""
    first = module_file(module)
    assert first is not None, module
    waiting = list(first.parent.glob("*.py")) if first.name == "__init__.py" else [first]
    found: set[Path] = set()
    while waiting:
        file = waiting.pop()
        if file not in found:
            found.add(file)
            waiting += [f for name in imports(file) if (f := module_file(name)) is not None]
    return found


def runs(target: str) -> list[tuple[str, str]]:
    """The environments and modules of `.venv/bin/python -m module` in a target."""
    texts = (re.sub(r"^(\w+=\S* )+", "", line) for line in commands(target))
    matches = (re.match(r"(\S+)/bin/python -m (benchmarks[\w.]*)", text) for text in texts)
    return [(m[1], m[2]) for m in matches if m is not None]


@pytest.mark.parametrize("target", _TARGETS)
def test_every_target_can_be_made_from_a_fresh_clone(target: str) -> None:
    assert commands(target)


@pytest.mark.parametrize(
    ("target", "environment", "module"),
    [(t, e, m) for t in _TARGETS for e, m in runs(t)],
)
def test_what_benchmarks_import_is_installed_for_them(
    target: str, environment: str, module: str
) -> None:
    available = installed(target, environment)
    owners = importlib.metadata.packages_distributions()
    missing = {}
    for file in reached(module):
        for name in imports(file):
            top = name.partition(".")[0]
            if top in sys.stdlib_module_names or module_file(top) is not None:
                continue
            if not {canonicalize_name(d) for d in owners.get(top, [top])} & available:
                missing[top] = str(file.relative_to(_ROOT))
    assert missing == {}
