"""The code in the guide about data runs as it stands."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

_GUIDE = Path(__file__).parents[2] / "docs" / "data.md"
_BLOCKS = re.findall(r"```python\n(.*?)```", _GUIDE.read_text(), re.DOTALL)


@pytest.mark.parametrize("index", range(len(_BLOCKS)))
def test_a_code_block_of_the_guide_runs(index: int, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(_BLOCKS[index])
    runpy.run_path(str(script), run_name="__main__")
