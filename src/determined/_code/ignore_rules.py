"""Which files are not code: built-in rules and `.detignore` files (gitignore syntax).

A `.detignore` file rules its own directory and overrides those above.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

IGNORE_FILE = ".detignore"
_BUILT_IN_RULES = (
    "__pycache__/",
    "*.py[co]",
    "*$py.class",
    "terraform",
    "terraform_data",
    "terraform.tfstate*",
    "terraform.tfvars*",
    ".terraform*",
    ".git/",
    ".vscode/",
    ".idea/",
    ".mypy_cache/",
    "/shared_fs",
    # Ours: never code, often huge.
    ".venv/",
    ".pytest_cache/",
    ".ruff_cache/",
    ".ipynb_checkpoints/",
    "*.tfevents.*",
)


@dataclass(frozen=True)
class Rules:
    """The rules of one directory, over those of the directory above."""

    spec: GitIgnoreSpec
    directory: str
    above: Rules | None = None

    def ignore(self, relative: str) -> bool:
        """Decide on a path relative to the root (directories end in `/`)."""
        verdict = self.spec.check_file(relative.removeprefix(self.directory)).include
        if verdict is None and self.above is not None:
            return self.above.ignore(relative)
        return bool(verdict)

    def read_below(self, directory: Path, relative: str) -> Rules:
        """Return the rules of a directory further down, `relative` to the root, ending in `/`."""
        lines = _read(directory)
        return Rules(_parse(lines), relative, self) if lines else self


def read_root_rules(directory: Path) -> Rules:
    """Return the rules of the directory where the code begins."""
    return Rules(_parse([*_BUILT_IN_RULES, *_read(directory)]), "")


def _read(directory: Path) -> list[str]:
    try:
        text = (directory / IGNORE_FILE).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    return text.splitlines()


def _parse(lines: list[str]) -> GitIgnoreSpec:
    from pathspec import GitIgnoreSpec

    return GitIgnoreSpec.from_lines(lines)
