"""`set_logger`."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize(("debug_enabled", "expected"), [(True, 2), (False, 1)])
def test_set_logger_shows_debug_lines_where_asked_to(debug_enabled: bool, expected: int) -> None:
    script = f"""
import logging
from determined.common import set_logger
set_logger({debug_enabled})
set_logger(debug_enabled={debug_enabled})
logging.getLogger("mine").debug("details")
logging.getLogger("mine").info("news")
"""
    result = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60
    )
    lines = result.stderr.splitlines()
    assert len(lines) == expected
    assert lines[-1].startswith("INFO: [")
    assert lines[-1].endswith("mine: news")
