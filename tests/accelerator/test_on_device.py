"""The tests that run on the simulated accelerator, in processes of their own."""

from __future__ import annotations

import pytest

from tests.accelerator.running import run_on_device

pytestmark = pytest.mark.timeout(600)  # the first one compiles the device, which takes seconds

_HERE = "tests/accelerator/on_device"

# Of the library's own tests, those that are about more than the CPU.
_TRAINER = [
    "tests/pytorch/test_exact_resume.py",
    "tests/pytorch/test_resume.py",
    "tests/pytorch/checkpoint/state",
    "tests/pytorch/checkpoint/saving/test_saver.py",
    "tests/pytorch/checkpoint/test_load.py",
    "tests/pytorch/data/test_seed.py",
    "tests/pytorch/data/test_batches.py",
    "tests/pytorch/callbacks/test_ema.py",
    "tests/pytorch/callbacks/test_guard.py",
    "tests/pytorch/callbacks/test_gradient_norm.py",
    "tests/pytorch/context",
    "tests/pytorch/metrics",
    "tests/pytorch/display",
    "tests/pytorch/experimental",
    "tests/pytorch/verify_resume",
]
# What of them is written for the CPU: tensors made there, and what holds without an accelerator.
_OF_THE_CPU = [
    "test_loading_gives_the_trained_weights",
]


def test_the_device_is_as_strict_as_it_says_and_training_is_right_on_it() -> None:
    run_on_device(f"{_HERE}/test_device.py", f"{_HERE}/test_training.py")


@pytest.mark.slow
def test_each_rank_has_a_device() -> None:
    run_on_device(f"{_HERE}/test_ranks.py")


@pytest.mark.slow
def test_the_tests_of_the_trainer_hold_on_the_device() -> None:
    without = " and ".join(f"not {name}" for name in _OF_THE_CPU)
    run_on_device(*_TRAINER, "-m", "not slow", "-k", without)
