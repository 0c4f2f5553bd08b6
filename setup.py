"""All settings are in pyproject.toml; here is the one step of a build that they cannot say."""

from __future__ import annotations

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py


class BuildWithPages(build_py):
    """Pack the pages of the documentation, which `det mcp` serves, into the wheel."""

    def run(self) -> None:
        super().run()
        if self.editable_mode:
            return  # a checkout has the pages themselves
        docs, target = Path("docs"), Path(self.build_lib, "determined", "mcp", "pages")
        for page in (docs / "llms.txt", *docs.rglob("*.md")):
            copy = target / page.relative_to(docs)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(page, copy)


setup(cmdclass={"build_py": BuildWithPages})
