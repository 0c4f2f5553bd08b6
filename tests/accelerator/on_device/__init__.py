"""Tests that need the simulated accelerator: `tests/accelerator/test_on_device.py` runs them.

By hand: `python -m tests.accelerator tests/accelerator/on_device`.
"""
