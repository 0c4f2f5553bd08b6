"""From a checkpoint's directory to a trial, for every layout that exists in the wild."""

from __future__ import annotations

import json
import logging
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from determined import pytorch
from determined.errors import (
    CheckpointNotFound,
    InvalidCheckpointException,
    InvalidExperimentException,
)
from determined.pytorch._checkpoint.files.reading import read_counters
from tests.support import old_trial
from tests.support.messages import documented
from tests.support.old_checkpoints import (
    BIAS,
    CONFIG,
    HPARAMS,
    IN_MAIN,
    LAYOUTS,
    MOMENTUM,
    OLD_API,
    SINGLE_KEYS,
    WEIGHT,
    Layout,
    first_draws,
)
from tests.support.old_trial import OldTrial
from tests.support.resumable import ResumableTrial, checkpoints, digest, train
from tests.support.terminal import file_script, run_in_pipes

load = pytorch.load_trial_from_checkpoint_path
BY_NAME = {layout.release: layout for layout in LAYOUTS}


def weights(loaded: Any) -> nn.Linear:
    model = loaded if isinstance(loaded, nn.Module) else loaded.model
    assert isinstance(model, nn.Linear)
    return model


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_every_layout_loads_by_its_own_code(layout: Layout, tmp_path: Path) -> None:
    modules, working_directory = set(sys.modules), Path.cwd()
    main = sys.modules["__main__"]
    path = layout.write(tmp_path / "checkpoint")
    loaded = load(str(path))
    assert isinstance(loaded, nn.Module) == (layout is OLD_API)
    assert torch.equal(weights(loaded).weight, WEIGHT)
    assert torch.equal(weights(loaded).bias, BIAS)
    assert weights(loaded).weight.device.type == "cpu"
    assert "model_def" not in set(sys.modules) - modules
    assert Path.cwd() == working_directory
    assert sys.modules["__main__"] is main
    assert not list(path.rglob("__pycache__"))


@pytest.mark.parametrize("layout", [x for x in LAYOUTS if x is not OLD_API], ids=str)
def test_every_layout_loads_with_a_given_class(layout: Layout, tmp_path: Path) -> None:
    path = layout.write(tmp_path / "checkpoint")
    (path / "code" / "model_def.py").write_text("raise SystemExit('not this one')")
    loaded = load(str(path), trial_class=OldTrial)
    assert type(loaded) is OldTrial
    assert torch.equal(weights(loaded).weight, WEIGHT)


def resume(path: Path, storage: Path, batches: int = 8) -> OldTrial:
    with pytorch.init(hparams=HPARAMS, checkpoint_storage=storage) as context:
        trial = OldTrial(context)
        pytorch.Trainer(trial, context).fit(
            max_length=pytorch.Batch(batches), checkpoint_policy="none", latest_checkpoint=str(path)
        )
    return trial


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_every_layout_can_be_resumed(
    layout: Layout, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = layout.write(tmp_path / "checkpoint")
    with caplog.at_level(logging.WARNING):
        trial = resume(path, tmp_path / "storage")
    assert trial.batch_idxs == list(range(layout.batches, 8))
    assert trial.draws[0] == first_draws()
    assert ("accelerator's random state" in caplog.text) == layout.on_gpu
    # One step of SGD from the saved weights with the saved momentum.
    trial = resume(path, tmp_path / "storage", layout.batches + 1)
    weight = WEIGHT.clone().requires_grad_()
    loss = (torch.ones(2, 3) @ weight.T + BIAS).square().mean()
    (gradient,) = torch.autograd.grad(loss, weight)
    expected = WEIGHT - 0.1 * (0.9 * MOMENTUM + gradient)
    torch.testing.assert_close(weights(trial).weight.detach().cpu(), expected)


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_a_checkpoint_of_another_trial_is_a_warm_start(layout: Layout, tmp_path: Path) -> None:
    path = layout.write(tmp_path / "checkpoint", trial_id=12)
    trial = resume(path, tmp_path / "storage", 2)
    assert trial.batch_idxs == [0, 1]
    assert trial.draws[0] == first_draws()


@pytest.mark.parametrize("name", ["0.17.6", "0.20.0"])
def test_counters_of_a_sequencer_file_continue(name: str, tmp_path: Path) -> None:
    layout = BY_NAME[name]
    path = layout.write(tmp_path / "checkpoint")
    resume(path, tmp_path / "storage", layout.batches + 1)
    (found,) = checkpoints(tmp_path / "storage", None)
    counters = read_counters(tmp_path / "storage" / found.storage_id)
    assert counters is not None
    assert counters["epochs_trained"] == layout.epochs
    assert counters["batches_trained"] == layout.batches + 1


def test_the_single_entries_of_the_oldest_files_load_and_resume(tmp_path: Path) -> None:
    path = SINGLE_KEYS.write(tmp_path / "checkpoint")
    assert torch.equal(weights(load(str(path))).weight, WEIGHT)
    assert resume(path, tmp_path / "storage", 1).batch_idxs == [0]
    with pytest.raises(InvalidCheckpointException, match="no build_model"):
        load(str(path), trial_class=OldTrial)


# What the trial is built with.


def test_a_legacy_trial_gets_the_stored_config_without_its_place(tmp_path: Path) -> None:
    trial = load(str(BY_NAME["0.17.7"].write(tmp_path / "checkpoint")))
    context: Any = trial.context  # type: ignore[attr-defined]  # of the class in the checkpoint
    config = context.get_experiment_config()
    assert config["searcher"] == CONFIG["searcher"]
    assert config["scheduling_unit"] == 100
    assert config["resources"] == {"slots_per_trial": 1}
    assert "checkpoint_storage" not in config
    assert context.get_hparams() == HPARAMS
    assert context.get_trial_seed() == 99
    assert context.get_per_slot_batch_size() == 2


@pytest.mark.parametrize("missing", ["experiment_config", "hparams"])
def test_a_legacy_checkpoint_without_settings_is_an_assertion(tmp_path: Path, missing: str) -> None:
    path = BY_NAME["0.17.7"].write(tmp_path / "checkpoint")
    stored = json.loads((path / "load_data.json").read_text())
    (path / "load_data.json").write_text(json.dumps({**stored, missing: None}))
    with pytest.raises(AssertionError):
        load(str(path))


def test_our_own_checkpoint_loads_with_its_hparams(tmp_path: Path) -> None:
    result = train(tmp_path, 3, init={"hparams": {"width": 2}})
    (found,) = checkpoints(tmp_path)
    trial: Any = load(str(tmp_path / found.storage_id), trial_class=ResumableTrial)
    assert digest([trial.body.state_dict(), trial.head.state_dict()]) == result.weights
    assert trial.context.get_hparams() == {"width": 2}
    assert trial.context.distributed.size == 1


def test_relative_paths_are_fine(tmp_path: Path) -> None:
    BY_NAME["0.17.7"].write(Path("checkpoint"))
    assert torch.equal(weights(load("checkpoint")).weight, WEIGHT)


def test_arguments_of_the_constructor_are_passed(tmp_path: Path) -> None:
    class Wider(OldTrial):
        def __init__(self, context: pytorch.PyTorchTrialContext, extra: int) -> None:
            super().__init__(context)
            self.extra = extra

    path = BY_NAME["0.21.0 trainer"].write(tmp_path / "checkpoint")
    trial: Any = load(str(path), trial_class=Wider, trial_kwargs={"extra": 4})
    assert trial.extra == 4


def test_options_of_torch_load_are_passed(tmp_path: Path) -> None:
    path = str(BY_NAME["0.21.0 trainer"].write(tmp_path / "checkpoint"))
    places: list[str] = []

    def place(storage: Any, location: str) -> Any:
        places.append(location)
        return storage

    load(path, trial_class=OldTrial, torch_load_kwargs={"map_location": place})
    assert "cpu" in places
    with pytest.warns(FutureWarning, match="torch_load_kwargs"):
        load(path, trial_class=OldTrial, map_location="cpu")
    with pytest.raises(ValueError, match="torch_load_kwargs"):
        load(path, torch_load_kwargs={}, map_location="cpu")


def test_a_class_of_a_script_is_found_in_the_code_or_asked_for(tmp_path: Path) -> None:
    path = IN_MAIN.write(tmp_path / "checkpoint")
    (path / "code" / "another.py").write_text("OldTrial = None\n")
    assert torch.equal(weights(load(str(path))).weight, WEIGHT)
    (path / "code" / "model_def.py").unlink()
    with pytest.raises(ValueError, match="`trial_class`") as caught:
        load(str(path))
    assert caught.value.__cause__ is not None


def test_a_script_in_a_folder_of_the_code_is_found(tmp_path: Path) -> None:
    path = IN_MAIN.write(tmp_path / "checkpoint")
    (path / "code" / "jobs").mkdir()
    (path / "code" / "model_def.py").rename(path / "code" / "jobs" / "train.py")
    (path / "code" / "other.py").write_text("class OldTrialOfMine: pass")
    assert torch.equal(weights(load(str(path))).weight, WEIGHT)


def test_an_import_root_outside_of_the_code_is_refused(tmp_path: Path) -> None:
    path = BY_NAME["0.21.0 trainer"].write(tmp_path / "checkpoint")
    load_data = json.loads((path / "load_data.json").read_text())
    load_data |= {"code_root": "../..", "code_spec": "model_def:OldTrial"}
    (path / "load_data.json").write_text(json.dumps(load_data))
    with pytest.raises(ValueError, match="outside"):
        load(str(path))


_SCRIPT = """
from helper import OldTrial

class Mine(OldTrial):
    pass

if __name__ == "__main__":
    import sys
    from determined import pytorch
    with pytorch.init(checkpoint_storage=sys.argv[1]) as context:
        trainer = pytorch.Trainer(Mine(context), context)
        trainer.fit(max_length=pytorch.Batch(1))
    print(trainer.latest_checkpoint)
"""


@pytest.mark.multiprocess
@pytest.mark.parametrize("cwd", ["project", "project/jobs", "elsewhere", "."])
def test_the_class_of_a_script_loads_wherever_it_was_started(
    cwd: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = tmp_path / "project" / "jobs"
    jobs.mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    (jobs / "train.py").write_text(_SCRIPT)
    shutil.copy(old_trial.__file__, jobs / "helper.py")
    (tmp_path / "project" / "train.py").write_text("class Mine: pass")  # not this one
    trained = run_in_pipes(
        file_script(jobs / "train.py", str(tmp_path / "storage"), cwd=tmp_path / cwd)
    )
    assert trained.exit_code == 0, trained.errors
    (jobs / "train.py").unlink()
    (jobs / "helper.py").unlink()
    monkeypatch.chdir(tmp_path)
    trial = load(trained.output.strip())
    assert type(trial).__name__ == "Mine"
    assert type(trial).__module__ == "train"


@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("import no_such_module", ValueError),
        ("class OldTrial: pass", ValueError),
        ("", ValueError),
        ("raise SystemExit(3)", InvalidExperimentException),
    ],
)
@pytest.mark.parametrize("name", ["0.17.7", "0.21.0 trainer"])
def test_code_that_cannot_be_imported_is_explained(
    tmp_path: Path, name: str, code: str, error: type[Exception]
) -> None:
    path = BY_NAME[name].write(tmp_path / "checkpoint")
    (path / "code" / "model_def.py").write_text(code)
    with pytest.raises(error, match="model_def:OldTrial") as caught:
        load(str(path))
    assert caught.value.__cause__ is not None


def test_trial_in_main_is_a_warning_or_an_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = BY_NAME["0.21.0 trainer"].write(tmp_path / "checkpoint")
    stored = json.loads((path / "load_data.json").read_text())
    (path / "load_data.json").write_text(json.dumps({**stored, "trial_in_main": True}))
    with caplog.at_level(logging.WARNING):
        load(str(path))
    assert "part of a script" in caplog.text
    stored["trial_cls_spec"] = ":OldTrial"
    (path / "load_data.json").write_text(json.dumps({**stored, "trial_in_main": True}))
    with pytest.raises(ValueError, match="which module"):
        load(str(path))


@pytest.mark.parametrize(
    ("name", "file", "change", "message"),
    [
        ("0.21.0 trainer", "load_data.json", {"trial_type": "TFKerasTrial"}, "TFKerasTrial"),
        ("0.13.13", "metadata.json", {"framework": "tensorflow-2"}, "does not identify"),
    ],
)
def test_another_framework_is_a_warning(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    name: str,
    file: str,
    change: dict[str, Any],
    message: str,
) -> None:
    path = BY_NAME[name].write(tmp_path / "checkpoint")
    stored = json.loads((path / file).read_text())
    (path / file).write_text(json.dumps({**stored, **change}))
    with caplog.at_level(logging.WARNING):
        load(str(path))
    assert message in caplog.text


def test_what_is_no_checkpoint_is_an_assertion(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=r"load_data.json nor metadata.json"):
        load(str(tmp_path))
    missing = tmp_path / "missing"
    with pytest.raises(AssertionError) as raised:
        load(str(missing))
    documented("the path of a checkpoint is wrong", str(raised.value), missing)
    with pytest.raises(CheckpointNotFound, match=f"{missing} does not exist"):
        resume(missing, tmp_path / "storage")


def test_loading_a_local_checkpoint_builds_no_storage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = BY_NAME["0.21.0 trainer"].write(tmp_path / "checkpoint")
    monkeypatch.setenv("DET_STORAGE", "ftp://no.such.storage")
    load(str(path))
    assert [entry.name for entry in tmp_path.iterdir() if entry.name.startswith(".")] == []


def test_a_checkpoint_without_tensors_names_the_files_tried(tmp_path: Path) -> None:
    path = BY_NAME["0.17.7"].write(tmp_path / "checkpoint")
    (path / "state_dict.pth").unlink()
    with pytest.raises(CheckpointNotFound, match=r"state_dict.pth, .*checkpoint.pt"):
        load(str(path))
    with pytest.raises(CheckpointNotFound, match=r"state_dict.pth, .*checkpoint.pt"):
        resume(path, tmp_path / "storage")


def test_an_empty_directory_cannot_be_resumed(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(InvalidCheckpointException, match=r"empty.*state_dict.pth"):
        resume(tmp_path / "empty", tmp_path / "storage")
    with pytest.raises(CheckpointNotFound, match="missing"):
        resume(tmp_path / "missing", tmp_path / "storage")


def test_another_number_of_models_is_refused(tmp_path: Path) -> None:
    path = BY_NAME["0.21.0 trainer"].write(tmp_path / "checkpoint")
    with pytest.raises(InvalidCheckpointException, match="1 models, but ResumableTrial wraps 2"):
        load(str(path), trial_class=ResumableTrial)


def test_a_context_for_users_own_constructors_is_on_the_cpu() -> None:
    context = pytorch.CheckpointLoadContext(hparams={"width": 3})
    assert context.device == torch.device("cpu")
    assert weights(OldTrial(context)).weight.shape == (2, 3)
    assert pytorch.CheckpointLoadContext()._hparams is None


def test_restoring_a_local_checkpoint_says_nothing_of_partial_downloads(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = BY_NAME["0.21.0 trainer"].write(tmp_path / "checkpoint")
    with caplog.at_level(logging.DEBUG):
        resume(path, tmp_path / "storage")
    assert "selector" not in caplog.text
    assert "partial" not in caplog.text.lower()
