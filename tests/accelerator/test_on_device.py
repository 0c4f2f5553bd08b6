"""The tests that run on the simulated accelerator, in processes of their own."""

from __future__ import annotations

import pytest

from tests.accelerator.running import run_on_device

pytestmark = pytest.mark.timeout(600)  # the first one compiles the device, which takes seconds

_HERE = "tests/accelerator/on_device"

# Of the library's own tests, those that are about more than the CPU.
_TRAINER = [
    "tests/pytorch/test_exact_resume.py",
    "tests/pytorch/checkpoint/resuming/test_resume.py",
    "tests/pytorch/checkpoint/state",
    "tests/pytorch/checkpoint/saving/test_saver.py",
    "tests/pytorch/checkpoint/test_exact_state.py::test_float32_state_of_bfloat16_weights_stays_float32",
    "tests/pytorch/data/test_seed.py",
    "tests/pytorch/data/test_batches.py",
    "tests/pytorch/callbacks/test_ema.py",
    "tests/pytorch/callbacks/test_guard.py",
    "tests/pytorch/callbacks/test_gradient_norm.py",
    "tests/pytorch/context/test_amp.py",
    "tests/pytorch/context/test_lr_scheduler.py",
    "tests/pytorch/metrics",
    "tests/pytorch/display/test_hints.py",
    "tests/pytorch/display/test_profile.py",
    "tests/pytorch/verify_resume",
]
# What of them says what holds without an accelerator, makes tensors on the CPU, or takes long.
_LEFT_OUT = [
    "test_state_has_the_keys_of_the_original",
    "test_large_gradients_pass_before_there_is_a_mean_to_compare_with",
    "test_spike_is_skipped_and_resume_remembers_the_mean",
    "test_without_an_accelerator_the_default_stays_in_float32",
    "test_forward_pass_may_be_wrapped_alone",
    "test_mix_does_not_depend_on_the_hash_seed",
    "test_ranks_validate_with_the_same_average_before_and_after_a_resume",
    "test_any_number_of_cuts_changes_nothing",
    "test_new_processes_continue_exactly",
]


def test_the_device_is_as_strict_as_it_says_and_training_is_right_on_it() -> None:
    run_on_device(f"{_HERE}/test_device.py", f"{_HERE}/test_training.py")


@pytest.mark.slow
def test_each_rank_has_a_device() -> None:
    run_on_device(f"{_HERE}/test_ranks.py")


@pytest.mark.slow
def test_generated_trials_are_exact_on_the_device() -> None:
    run_on_device(f"{_HERE}/test_generated.py")


@pytest.mark.slow
def test_the_tests_of_the_trainer_hold_on_the_device() -> None:
    without = " and ".join(f"not {name}" for name in _LEFT_OUT)
    run_on_device(*_TRAINER, "-m", "not slow", "-k", without)
