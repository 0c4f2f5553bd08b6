"""The configurations of the examples run on the platform, all of them in one home."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from determined.config import Completion, load_file
from determined.store import Trial
from tests.examples.data_files import write_cifar10, write_mnist
from tests.examples.running import EXAMPLES
from tests.support.lab import Lab, lab

__all__ = ["lab"]
pytestmark = [pytest.mark.slow, pytest.mark.multiprocess, pytest.mark.timeout(600)]


def _search(max_time: int, max_trials: int = 2) -> list[str]:
    return [f"searcher.max_trials={max_trials}", f"searcher.max_time={max_time}"]


_LAUNCH = "python3 -m determined.launch.torch_distributed -- "

# The entrypoint that makes each of them short, and what else does.
SHORT = {
    "char_lm/const.yaml": ["python3 train.py --batches 8 --width 16"],
    "cifar10_cnn_pytorch/const.yaml": ["python3 train.py {cifar10} --batches 8"],
    "core_api/const.yaml": ["python3 train.py --epochs 3"],
    "custom_reducers/const.yaml": ["python3 train.py --epochs 1"],
    "digits/const.yaml": ["python3 train.py --epochs 2"],
    "distributed/const.yaml": [_LAUNCH + "python3 train.py --epochs 1"],
    "fine_tuning/const.yaml": ["python3 pretrain.py --epochs 1"],
    "fsdp/const.yaml": [_LAUNCH + "python3 train.py --epochs 1"],
    "gan_digits/const.yaml": ["python3 train.py --epochs 1"],
    "graph_batches/const.yaml": ["python3 train.py --epochs 1"],
    "transformers_trainer/const.yaml": ["python3 train.py --max_steps 20"],
    "lightning_module/const.yaml": ["python3 train.py --epochs 1"],
    "mnist_pytorch/const.yaml": ["python3 train.py {mnist} --epochs 1"],
    "mnist_pytorch/trial_class.yaml": [
        "train:MNistTrial",
        "searcher.max_length.epochs=1",
        "hyperparameters.data={mnist}",
    ],
    "char_lm/adaptive.yaml": ["python3 train.py --batches 8", *_search(8)],
    "cifar10_cnn_pytorch/adaptive.yaml": ["python3 train.py {cifar10} --batches 8", *_search(8)],
    "core_api/adaptive.yaml": ["python3 train.py --epochs 3", *_search(3)],
    "custom_searcher/median.yaml": ["python3 train.py", "searcher.max_trials=4"],
    "digits/population.yaml": [
        "python3 train.py --epochs 2",
        "searcher.population=2",
        "searcher.interval=1",
        "searcher.max_time=2",
    ],
    "digits/seeds.yaml": ["python3 train.py --epochs 1", "repeat=2"],
    "digits/adaptive.yaml": ["python3 train.py --epochs 3", *_search(3, max_trials=3)],
    "transformers_trainer/adaptive.yaml": ["python3 train.py --max_steps 40", *_search(40)],
    "lightning_module/adaptive.yaml": ["python3 train.py --epochs 2", *_search(2)],
    "mnist_pytorch/adaptive.yaml": ["python3 train.py {mnist} --epochs 4", *_search(4)],
}


def test_every_configuration_has_its_short_form() -> None:
    written = {str(path.relative_to(EXAMPLES)) for path in EXAMPLES.glob("*/*.yaml")}
    assert written == set(SHORT)


def test_every_configuration_runs_and_reports_its_metric(lab: Lab) -> None:
    data = {"mnist": lab.folder / "mnist", "cifar10": lab.folder / "cifar10"}
    write_mnist(data["mnist"], train=320, test=100, packed=False)
    write_cifar10(data["cifar10"], images_per_batch=60)
    made = {
        name: _create(lab, name, [word.format(**data) for word in words])
        for name, words in SHORT.items()
        if _is_installed(name)
    }
    ended = {name: lab.wait(number) for name, number in made.items()}
    trials = {name: lab.trials(number) for name, number in made.items()}

    assert {name: e.state for name, e in ended.items()} == dict.fromkeys(made, "COMPLETED"), (
        lab.account()
    )
    assert [name for name, e in ended.items() if e.best_validation is None] == []
    counts = {
        name: len(found)
        for name, found in trials.items()
        if "max_trials" in ended[name].config["searcher"]
    }
    assert counts == {name: int(ended[name].config["searcher"]["max_trials"]) for name in counts}
    for name in ("digits/const.yaml", "digits/adaptive.yaml", "core_api/const.yaml"):
        assert (ended[name].best_validation or 0) > 0.8, name
    assert len(_rates(trials["digits/adaptive.yaml"])) == 3

    (run,) = lab.runs(made["distributed/const.yaml"])
    assert lab.log(run).count("32 images a batch") == 2


def _is_installed(name: str) -> bool:
    """Whether the library that an example is about is there; extras may not be."""
    library = name.partition("_")[0]
    is_extra = library in ("transformers", "lightning")
    return not is_extra or importlib.util.find_spec(library) is not None


def _rates(trials: list[Trial]) -> set[float]:
    return {trial.hparams["learning_rate"] for trial in trials}


def _create(lab: Lab, name: str, words: list[str]) -> int:
    overrides = [f"entrypoint={words[0]}", "max_restarts=0", *words[1:]]
    path = Path(EXAMPLES, name)
    storage = {"type": "shared_fs", "host_path": str(lab.home.checkpoints)}
    loaded = load_file(path, overrides, Completion(created=1, checkpoint_storage=storage))
    return lab.service.create(loaded, lab.service.take_snapshot(path.parent), path.parent)
