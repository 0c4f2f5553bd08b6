"""Tests for the pause of the garbage collector."""

import gc
import subprocess
import sys

import pytest

from determined._os.garbage_collector import paused_collector


def test_the_collector_rests_inside_and_works_again_after() -> None:
    with paused_collector():
        assert not gc.isenabled()
    assert gc.isenabled()


def test_a_failure_inside_does_not_leave_it_paused() -> None:
    with pytest.raises(ValueError, match="broken"), paused_collector():
        raise ValueError("broken")
    assert gc.isenabled()


def test_who_had_it_off_keeps_it_off() -> None:
    gc.disable()
    try:
        with paused_collector():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_importing_the_library_does_not_look_through_all_of_torch() -> None:
    script = """
import gc, torch
before = gc.get_stats()[2]["collections"]
import determined.pytorch
assert gc.get_stats()[2]["collections"] == before
assert gc.isenabled()
"""
    subprocess.run([sys.executable, "-c", script], check=True)
