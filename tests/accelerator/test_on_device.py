"""The tests that run on the simulated accelerator, in a process of their own."""

from __future__ import annotations

import pytest

from tests.accelerator.running import run_on_device

pytestmark = pytest.mark.timeout(400)  # the first one compiles the device


def test_the_device_is_as_strict_as_it_says() -> None:
    run_on_device("tests/accelerator/on_device/test_device.py")
