"""Every other example runs as its README says and reaches what it promises."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.examples.running import EXAMPLES, launch_example, number_after, percentages, run_example

pytestmark = pytest.mark.timeout(240)  # more than the deadlines of two runs


@pytest.mark.slow
def test_digits_trains_and_loads_its_checkpoint() -> None:
    output = launch_example("digits", "train.py", "--epochs=2")
    assert percentages(output)[0] > 80
    assert "python train.py --resume --epochs 4" in output


@pytest.mark.slow
def test_generated_digits_come_closer_to_real_ones_than_noise() -> None:
    output = run_example("gan_digits", "train.py", "--epochs=15")
    generated = number_after(output, "generated ones:")
    assert generated < 0.8 * number_after(output, "to noise:")
    assert "@@" in output


@pytest.mark.slow
def test_the_language_model_needs_fewer_bits_than_guessing() -> None:
    output = run_example("char_lm", "train.py", "--batches=60", "--width=32")
    assert output.startswith("The value of ")
    bits = float(re.findall(r"([\d.]+) bits per letter", output)[0])
    assert bits < 0.75 * number_after(output, "guessing blindly takes")


@pytest.mark.slow
def test_an_adapter_learns_and_is_exported(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    pytest.importorskip("peft")
    folder, adapter = f"--folder={tmp_path / 'pretrained'}", f"--adapter={tmp_path / 'adapter'}"
    run_example("lora", "pretrain.py", "--batches=60", folder)
    output = run_example("lora", "train.py", "--batches=20", folder, adapter)
    assert number_after(output, "after:") < number_after(output, "before:")
    assert {file.name for file in (tmp_path / "adapter").iterdir()} >= {
        "adapter_config.json",
        "adapter_model.safetensors",
    }


@pytest.mark.slow
def test_graphs_in_batches_of_a_class_of_ours_are_learned() -> None:
    output = run_example("graph_batches", "train.py", "--epochs=5")
    assert "of 360 unseen graphs" in output
    assert percentages(output)[0] > 50


@pytest.mark.slow
@pytest.mark.multiprocess
def test_the_area_under_the_curve_is_exact_over_batches_and_ranks() -> None:
    output = run_example("custom_reducers", "train.py", "--epochs=3", processes=2)
    area = number_after(output, "2 ranks:")
    assert area > 0.8
    assert area == pytest.approx(number_after(output, "AUC of all scores at once:"), abs=2e-6)
    assert area != pytest.approx(number_after(output, "mean of the batches' AUCs:"), abs=1e-4)
    assert 0.3 < number_after(output, "average precision:") < 1


@pytest.mark.slow
def test_all_ways_of_mixed_precision_learn_the_same() -> None:
    output = run_example("mixed_precision", "train.py", "--epochs=2")
    types = re.findall(r"(\w+) +computed in torch\.(\w+)", output)
    assert dict(types) == {
        "FullTrial": "float32",
        "AutomaticTrial": "bfloat16",
        "ManualTrial": "bfloat16",
    }
    full, automatic, manual = percentages(output)
    assert full > 80
    assert automatic == pytest.approx(full, abs=5)
    assert manual == pytest.approx(full, abs=5)


@pytest.mark.slow
def test_aggregated_small_batches_equal_large_ones() -> None:
    output = run_example("aggregation_and_clipping", "train.py", "--epochs=2")
    updates = re.findall(r"(\d+) updates", output)
    assert updates == ["44", "44"]
    assert number_after(output, "longest gradient") > 0.5
    assert number_after(output, "between their weights is") < 1e-5


@pytest.mark.slow
def test_a_stopped_and_continued_run_equals_an_unbroken_one() -> None:
    output = run_example("resume", "train.py", "--batches=60", "--stop-at=23")
    assert "4 of 4 tensors still differed" in output
    assert "After it continued, 0 differ" in output


@pytest.mark.slow
@pytest.mark.multiprocess
def test_two_processes_reach_the_weights_of_one() -> None:
    words = "norm of the weights"
    one = run_example("distributed", "train.py", "--epochs=2")
    two = launch_example("distributed", "train.py", "--epochs=2", processes=2)
    assert "64 images a batch" in one
    assert two.count("32 images a batch") == 2
    norms = [float(norm) for norm in re.findall(rf"{words} ([\d.]+)", two)]
    assert norms[0] == norms[1] == pytest.approx(number_after(one, words), rel=1e-4)
    assert percentages(two)[0] == pytest.approx(percentages(one)[0], abs=1)


@pytest.mark.slow
def test_a_trained_body_is_frozen_and_gets_a_new_head() -> None:
    pretrained = run_example("fine_tuning", "pretrain.py", "--epochs=3")
    checkpoint = pretrained.split()[-1]
    output = run_example("fine_tuning", "fine_tune.py", checkpoint, "--epochs=20")
    assert "The trained body is as it was." in output
    assert percentages(output)[0] > 75


def test_every_example_is_small_and_says_what_it_is() -> None:
    for folder in (path for path in EXAMPLES.iterdir() if path.is_dir()):
        scripts = list(folder.glob("*.py"))
        assert scripts, folder
        for script in scripts:
            assert len(script.read_text().splitlines()) <= 150, script
        if folder.name != "digits":
            assert len((folder / "README.md").read_text().splitlines()) in (5, 6), folder
