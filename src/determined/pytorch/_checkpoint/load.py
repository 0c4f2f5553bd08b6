"""From a checkpoint's files to a trial object, for inference or further work."""

from __future__ import annotations

import contextlib
import copy
import logging
import os
import pathlib
import re
import warnings
from collections.abc import Iterator
from typing import Any

from torch import nn

from determined._code.import_from_path import import_from_path
from determined._contracts.checkpoint_layout import CODE, LOAD_DATA, METADATA, MODELS, OLD_MODEL
from determined._legacy.local_execution import _local_execution_manager
from determined.core import CheckpointContext, Context
from determined.core._distributed import DummyDistributedContext
from determined.errors import InvalidCheckpointException, InvalidExperimentException
from determined.load import trial_class_from_entrypoint
from determined.pytorch._checkpoint.files.reading import make_objects, read_json, read_state
from determined.pytorch._checkpoint.files.shards import join
from determined.pytorch._checkpoint.files.trust import Trust
from determined.pytorch._checkpoint.state.averages import averaged_models
from determined.pytorch._checkpoint.state.training_state import load_model
from determined.pytorch._checks.arguments import check_flag, check_kind, check_path
from determined.pytorch._context.context import PyTorchTrialContext
from determined.pytorch._trial import PyTorchTrial
from determined.storage import SharedFSStorageManager

logger = logging.getLogger("determined.pytorch")

# What older trials may expect of a configuration, besides what was stored.
_DEFAULTS: dict[str, Any] = {
    "searcher": {"name": "single", "max_length": {"batches": 100}},
    "scheduling_unit": 100,
    "resources": {"slots_per_trial": 1},
    "optimizations": {"aggregation_frequency": 1, "average_aggregated_gradients": True},
}
# What a checkpoint's configuration says of the place where it was trained, not of the trial.
_NOT_OF_THE_TRIAL = (
    "bind_mounts",
    "checkpoint_storage",
    "environment",
    "resources",
    "optimizations",
)


class CheckpointLoadContext(PyTorchTrialContext):
    """A context to build a trial with, outside of training: on the CPU, nothing is wrapped.

    For trials with more constructor arguments: `MyTrial(CheckpointLoadContext(hparams=...), ...)`.
    """

    def __init__(
        self, hparams: dict[str, Any] | None = None, exp_conf: dict[str, Any] | None = None
    ) -> None:
        super().__init__(
            core_context=Context(CheckpointContext(DummyDistributedContext())),
            trial_seed=0,
            hparams=hparams,
            slots_per_trial=1,
            num_gpus=0,
            exp_conf=exp_conf,
            aggregation_frequency=1,
            steps_completed=0,
            managed_training=False,
            debug_enabled=False,
        )


def load_trial_from_checkpoint_path(
    path: str,
    trial_class: type[PyTorchTrial] | None = None,
    trial_kwargs: dict[str, Any] | None = None,
    torch_load_kwargs: dict[str, Any] | None = None,
    *,
    allow_pickle: bool = False,
    ema: bool | str = False,
    **kwargs: Any,
) -> PyTorchTrial:
    """Build the trial of a checkpoint directory and load the weights of its models.

    Only the models are restored; to continue training, pass the checkpoint to `fit`. Without
    `trial_class`, the class is imported from the code in the checkpoint: give it for files that you
    do not trust. An import that such code runs only later looks among the modules of this process.

    Args:
        path: The checkpoint's directory.
        trial_class: The class, instead of the one stored with the checkpoint.
        trial_kwargs: Further arguments of the class's constructor.
        torch_load_kwargs: Arguments for `torch.load`, such as `map_location` (default: the CPU).
        allow_pickle: Load files that need more than tensors and plain values. This can run code
            from the checkpoint: only for files you trust.
        ema: Load the weights that `callbacks.ExponentialMovingAverage` averaged, which validations
            measured, instead of those that were trained; with several such callbacks, the name of
            one.
        **kwargs: The older form of `torch_load_kwargs`.
    """
    if kwargs:
        if torch_load_kwargs is not None:
            raise ValueError(
                "Give arguments for torch.load in `torch_load_kwargs` only, not as keywords as "
                f"well: {sorted(kwargs)}."
            )
        warnings.warn(
            "Passing arguments for torch.load as keywords is deprecated: use torch_load_kwargs.",
            FutureWarning,
            stacklevel=2,
        )
        torch_load_kwargs = kwargs
    check_path("path", path, optional=False)
    check_kind("trial_kwargs", trial_kwargs, dict, "a dictionary")
    check_kind("torch_load_kwargs", torch_load_kwargs, dict, "a dictionary")
    check_kind("ema", ema, (bool, str), "True, False or the name of a callback", optional=False)
    if trial_class is not None and not isinstance(trial_class, type):
        raise TypeError(f"`trial_class` must be a class, got {trial_class!r}.")
    check_flag("allow_pickle", allow_pickle)
    if allow_pickle:
        torch_load_kwargs = {"weights_only": False, **(torch_load_kwargs or {})}
    directory = pathlib.Path(path).absolute()
    # Not Path.exists, which raises for names that cannot be.
    assert os.path.exists(directory), (  # noqa: PTH110
        f"`path` must be the directory of a checkpoint, but {directory} does not exist."
    )
    description = _describe(directory)
    storage = SharedFSStorageManager(directory.parent)
    with storage.restore_path(directory):  # verified first, and not deleted meanwhile
        return _load(directory, description, trial_class, trial_kwargs, torch_load_kwargs, ema)


def _load(
    directory: pathlib.Path,
    description: dict[str, Any],
    trial_class: type[PyTorchTrial] | None,
    trial_kwargs: dict[str, Any] | None,
    torch_load_kwargs: dict[str, Any] | None,
    ema: bool | str,
) -> PyTorchTrial:
    if trial_class is None:
        trial_class = _import_trial_class(directory, description)
    context = _load_context(description)
    trial = trial_class(context, **(trial_kwargs or {}))
    options = dict(torch_load_kwargs or {})
    allow_pickle = not options.pop("weights_only", True)
    checkpoint = read_state(directory, allow_pickle, **options)
    checkpoint = join(directory, checkpoint, allow_pickle=allow_pickle, **options)
    for key in checkpoint.keys() & {MODELS, OLD_MODEL}:  # the rest is not for this
        trust = Trust(anything=allow_pickle)
        checkpoint[key] = make_objects(checkpoint[key], directory, trust)
    if description["may_build_model"]:
        build_model = getattr(trial, "build_model", None)
        if callable(build_model):
            return _load_built_model(build_model(), checkpoint)
        if OLD_MODEL in checkpoint:
            raise InvalidCheckpointException(
                f"{directory} holds one model, but {trial_class.__name__} has no build_model "
                "method to build it."
            )
    models = averaged_models(checkpoint, ema) if ema else checkpoint.get(MODELS, [])
    if not ema and (read_json(directory / METADATA) or {}).get("measured"):
        logger.info(
            f"The metrics of {directory.name} were measured with averaged weights; these are the "
            "trained ones. Load the average with load_trial_from_checkpoint_path(..., ema=True)."
        )
    if len(models) != len(context.models):
        raise InvalidCheckpointException(
            f"{directory} has {len(models)} models, but {trial_class.__name__} wraps "
            f"{len(context.models)}."
        )
    for index, (model, saved) in enumerate(zip(context.models, models, strict=True)):
        load_model(model, saved, f"model {index}")
    return trial


def _describe(directory: pathlib.Path) -> dict[str, Any]:
    """Read what kind of checkpoint this is, in the form of whichever release wrote it."""
    load_data, metadata = directory / LOAD_DATA, directory / METADATA
    stored = read_json(load_data)
    if stored is not None:
        if stored.get("trial_type") != "PyTorchTrial":
            logger.warning(
                f"{load_data} belongs to a {stored.get('trial_type')}, not a PyTorchTrial."
            )
        spec = str(stored.get("trial_cls_spec", ""))
        if stored.get("trial_in_main"):
            if not spec.partition(":")[0]:
                raise ValueError(f"{load_data} does not say which module the trial class is in.")
            logger.warning(
                f"The trial class {spec} was part of a script; its module is imported now."
            )
        return {
            "config": _section(stored, "experiment_config", load_data),
            "hparams": _section(stored, "hparams", load_data),
            "spec": spec,
            "code_root": stored.get("code_root"),
            "code_spec": stored.get("code_spec"),
            "is_trainer": stored.get("is_trainer", False),
            "may_build_model": False,
        }
    stored = read_json(metadata)
    assert stored is not None, (
        f"`path` must be the directory of a checkpoint, but {directory} has neither {LOAD_DATA} "
        f"nor {METADATA}, so it is not a checkpoint of a trial."
    )
    if not str(stored.get("framework", "")).startswith("torch") and "torch_version" not in stored:
        logger.warning(f"{metadata} does not identify this as a torch checkpoint.")
    config = _section(stored, "experiment_config", metadata)
    return {
        "config": config,
        "hparams": _section(stored, "hparams", metadata),
        "spec": str((config or {}).get("entrypoint", "")),
        "is_trainer": False,
        "may_build_model": True,
    }


def _section(stored: dict[str, Any], name: str, file: pathlib.Path) -> dict[str, Any] | None:
    section = stored.get(name)
    if section is None or isinstance(section, dict):
        return section
    raise InvalidCheckpointException(f"`{name}` in {file} must be an object or null.")


def _load_context(description: dict[str, Any]) -> CheckpointLoadContext:
    config, hparams = description["config"], description["hparams"]
    if not description["is_trainer"]:
        assert config is not None, "The checkpoint does not contain the experiment's configuration."
        assert hparams is not None, "The checkpoint does not contain the hyperparameters."
        stored = {key: value for key, value in config.items() if key not in _NOT_OF_THE_TRIAL}
        config = {**copy.deepcopy(_DEFAULTS), **stored}
    context = CheckpointLoadContext(hparams=hparams, exp_conf=config)
    seed = ((config or {}).get("reproducibility") or {}).get("experiment_seed")
    context._start_at(0, seed or 0)
    return context


def _import_trial_class(directory: pathlib.Path, description: dict[str, Any]) -> type[PyTorchTrial]:
    spec, code = description["spec"], directory / CODE
    try:
        root, name = _place_in_code(code, description)
        with _importing(root, code, description["is_trainer"]):
            return trial_class_from_entrypoint(name)  # type: ignore[return-value]  # checked by its users
    except SystemExit as e:
        raise InvalidExperimentException(
            f"The code in {code} exited the interpreter while {spec} was imported."
        ) from e
    except Exception as e:
        raise ValueError(
            f"The trial class {spec!r} could not be imported from {code}: {e}. Pass it as "
            "`trial_class`."
        ) from e


def _place_in_code(code: pathlib.Path, description: dict[str, Any]) -> tuple[pathlib.Path, str]:
    """Return the directory to import the class from, and its `module:Class`."""
    root, name = description.get("code_root"), description.get("code_spec")
    if isinstance(root, str) and isinstance(name, str):
        place = (code / root).resolve()
        if not place.is_relative_to(code.resolve()):
            raise ValueError(f"the import root {root!r} lies outside of it")
        return place, name
    module, _, qualified_name = description["spec"].partition(":")
    if module != "__main__":
        return code, description["spec"]
    script = _find_script(code, qualified_name)
    return script.parent, f"{script.stem}:{qualified_name}"


@contextlib.contextmanager
def _importing(root: pathlib.Path, code: pathlib.Path, is_trainer: bool) -> Iterator[None]:
    """Import from the checkpoint's code; older trials also expect to run inside it."""
    with contextlib.ExitStack() as stack:
        if not is_trainer:
            stack.enter_context(_local_execution_manager(code))
        stack.enter_context(import_from_path(root, code))
        yield


def _find_script(code: pathlib.Path, name: str) -> pathlib.Path:
    """Find the script that defines a class, when the checkpoint does not say which one it was."""
    definition = re.compile(rf"^class {re.escape(name.partition('.')[0])}\b", re.MULTILINE)
    scripts = sorted(code.rglob("*.py"), key=lambda script: (len(script.parts), script))
    for script in scripts:
        if definition.search(script.read_text(errors="replace")):
            return script
    raise ValueError(f"no script in it defines {name}")


def _load_built_model(model: nn.Module, checkpoint: dict[str, Any]) -> PyTorchTrial:
    """Load the model of a trial from before models were wrapped."""
    saved = checkpoint.get(OLD_MODEL) or checkpoint[MODELS][0]
    load_model(model, saved, "the model of build_model")
    return model  # type: ignore[return-value]  # such a checkpoint gives a bare module
