"""Write the platform's figures into docs/performance.md, and draw them.

    python -m benchmarks.platform.page [RESULTS.json ...]

Of a figure that is in several files the last counts, so that one group can be measured again.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

from benchmarks import report
from benchmarks.platform import picture
from benchmarks.platform.figure import Figure, table

_ROOT = Path(__file__).parents[2]
_PAGE = _ROOT / "docs" / "performance.md"
_PICTURE = _ROOT / "docs" / "images" / "platform.png"
_MARKS = (
    "<!-- platform: written by python -m benchmarks.platform.page -->",
    "<!-- end of platform -->",
)


def main(paths: list[str]) -> None:
    files = paths or [str(_ROOT / "benchmarks" / "results" / "platform.json")]
    results: list[dict[str, Any]] = [json.loads(Path(path).read_text()) for path in files]
    figures = {}
    for result in results:
        for data in result["figures"]:
            known = {name: data[name] for name in data if name not in ("group", "verdict")}
            figures[data["what"]] = Figure(**known)
    machine = results[-1]["machine"]
    setting = (
        f"{machine['date']}, {machine['processor']}, {machine['cores']} cores, Python "
        f"{machine['python']}, torch {machine['versions']['torch']}. The last column is the load."
    )
    blocks = [setting, table(figures.values())]
    if importlib.util.find_spec("matplotlib") is None:
        print("There is no picture: matplotlib is not installed.")
    else:
        picture.draw(list(figures.values()), _PICTURE)
        blocks.insert(1, f"![Figures as shares of their goals](images/{_PICTURE.name})")
        print(f"Drew {_PICTURE}")
    _PAGE.write_text(report.update(_PAGE.read_text(), "\n\n".join(blocks), _MARKS))
    print(f"Updated {_PAGE}")


if __name__ == "__main__":
    main(sys.argv[1:])
