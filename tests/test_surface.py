"""The names users import, and what an import costs."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import determined
import determined.experimental
import determined.pytorch
import determined.pytorch.experimental
from tests.support.messages import documented

_HEAVY = ("torch", "numpy", "tensorboard", "fsspec", "psutil", "rich")


def _loaded_after(statement: str) -> list[str]:
    script = f"import sys\n{statement}\nprint([m for m in {_HEAVY!r} if m in sys.modules])"
    answer = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60
    )
    return [str(name) for name in eval(answer.stdout)]


def test_importing_the_package_loads_nothing_heavy() -> None:
    statement = (
        "import determined, determined.util, determined.core, determined.experimental.client, "
        "determined.common.util, determined.horovod"
    )
    assert _loaded_after(statement) == []


def test_importing_the_training_library_loads_nothing_heavy_but_torch() -> None:
    assert _loaded_after("import determined.pytorch") == ["torch", "numpy"]


def test_public_names_of_the_package_are_these() -> None:
    assert sorted(determined.__all__) == sorted(
        [
            "ClusterInfo",
            "EnvContext",
            "ExperimentConfig",
            "InvalidHP",
            "LOG_FORMAT",
            "LegacyTrial",
            "RendezvousInfo",
            "ResourcesInfo",
            "TrialContext",
            "TrialController",
            "TrialInfo",
            "_DistributedBackend",
            "__version__",
            "_local_execution_manager",
            "_make_local_execution_env",
            "core",
            "errors",
            "get_cluster_info",
            "import_from_path",
            "util",
        ]
    )
    assert all(hasattr(determined, name) for name in determined.__all__)


def test_public_names_of_core_are_these() -> None:
    assert sorted(determined.core.__all__) == sorted(
        [
            "CheckpointContext",
            "Context",
            "DistributedContext",
            "DownloadMode",
            "DummyCheckpointContext",
            "DummyDistributedContext",
            "DummyExperimentalCoreContext",
            "DummyPreemptContext",
            "DummyProfilerContext",
            "DummySearcherContext",
            "DummySearcherOperation",
            "DummyTrainContext",
            "EarlyExitReason",
            "ExperimentalCoreContext",
            "PreemptContext",
            "PreemptMode",
            "ProfilerContext",
            "SearcherContext",
            "SearcherContextMissing",
            "SearcherMode",
            "SearcherOperation",
            "TensorboardMode",
            "TrainContext",
            "Unit",
            "_dummy_init",
            "init",
        ]
    )
    assert all(hasattr(determined.core, name) for name in determined.core.__all__)


def test_log_format_is_the_published_one() -> None:
    assert determined.LOG_FORMAT == "%(levelname)s: [%(process)s] %(name)s: %(message)s"


def test_public_names_of_pytorch_are_these() -> None:
    assert sorted(determined.pytorch.__all__) == sorted(
        [
            "Batch",
            "CheckpointLoadContext",
            "DataLoader",
            "Epoch",
            "LRScheduler",
            "MetricReducer",
            "Perplexity",
            "PyTorchCallback",
            "PyTorchExperimentalContext",
            "PyTorchTrial",
            "PyTorchTrialContext",
            "Reducer",
            "ShouldExit",
            "TorchData",
            "TrainUnit",
            "Trainer",
            "Weighted",
            "adapt_batch_sampler",
            "data_length",
            "empty_weights",
            "export",
            "init",
            "load_trial_from_checkpoint_path",
            "samplers",
            "to_device",
        ]
    )
    assert all(hasattr(determined.pytorch, name) for name in determined.pytorch.__all__)


def test_public_names_of_samplers_and_batch_processing_are_these() -> None:
    assert sorted(determined.pytorch.samplers.__all__) == [
        "DistributedBatchSampler",
        "DistributedSampler",
        "RepeatBatchSampler",
        "RepeatSampler",
        "ReproducibleShuffleBatchSampler",
        "ReproducibleShuffleSampler",
        "SkipBatchSampler",
        "SkipSampler",
    ]
    assert sorted(determined.pytorch.experimental.__all__) == [
        "TorchBatchProcessor",
        "TorchBatchProcessorContext",
        "get_default_device",
        "torch_batch_process",
    ]


@pytest.mark.parametrize(
    ("module", "names"),
    [
        # What other code imports from the package although it is not announced.
        (
            "determined.pytorch",
            "_Data _dataset_repro_warning _PyTorchReducerContext _SimpleReducer "
            "_simple_reduce_metrics _combine_and_average_training_metrics "
            "_prepare_metrics_reducers _reduce_metrics _convert_metrics_to_numpy _log_tb_metrics "
            "_ShouldExit _TrainBoundary _TrainBoundaryType _TrialState _PyTorchTrialController",
        ),
        ("determined.pytorch._pytorch_trial", "ShouldExit"),
        (
            "determined.pytorch.experimental",
            "torch_batch_process TorchBatchProcessor TorchBatchProcessorContext get_default_device",
        ),
        ("determined.tensorboard.metric_writers.pytorch", "TorchWriter"),
        ("determined.tensorboard.metric_writers", "MetricWriter BatchMetricWriter"),
        ("determined.tensorboard", "MetricWriter BatchMetricWriter"),
        ("determined.core._distributed", "DistributedContext"),
        ("determined.experimental", "test_one_batch"),
        ("determined.errors", "InvalidHP CheckpointNotFound InvalidCheckpointException"),
        (
            "determined.util",
            "make_metrics calculate_batch_sizes is_overridden has_param write_user_code "
            "is_numerical_scalar make_timing_log json_encode get_member_func rmtree_nfs_safe "
            "merge_dicts force_create_symlink download_gcs_blob_with_backoff",
        ),
        ("determined.common", "set_logger"),
        (
            "determined.common.util",
            "chunks sizeof_fmt safe_load_yaml_with_exceptions yaml_safe_load yaml_safe_dump "
            "debug_mode",
        ),
        ("determined.constants", "MAX_SLOTS_PER_AGENT INTER_TRAIN_PROCESS_COMM_PORT_1 C10D_PORT"),
        ("ruamel.yaml", "YAML"),
        (
            "determined.common.storage",
            "build from_config from_string validate_config validate_manager StorageManager "
            "SharedFSStorageManager DirectoryStorageManager S3StorageManager GCSStorageManager "
            "AzureStorageManager",
        ),
        ("determined.horovod", "hvd"),
        (
            "determined.experimental",
            "client Determined Experiment Trial Checkpoint Model ModelVersion OrderBy",
        ),
        ("determined.experimental.client", "Determined create_experiment get_checkpoint login"),
        ("determined.load", "trial_class_from_entrypoint"),
        ("determined.launch.torch_distributed", "parse_args main create_launch_cmd"),
        ("determined.exec.harness", "main"),
    ],
)
def test_names_that_existing_code_imports_are_there(module: str, names: str) -> None:
    found = importlib.import_module(module)
    assert [name for name in names.split() if not hasattr(found, name)] == []


def test_one_object_under_two_names_is_one_object() -> None:
    assert determined.core.DistributedContext is determined.core._distributed.DistributedContext
    assert determined.pytorch.ShouldExit.__name__ == "_ShouldExit"
    assert determined.pytorch.samplers is sys.modules["determined.pytorch.samplers"]
    assert determined.InvalidHP is determined.errors.InvalidHP
    assert issubclass(determined.pytorch.PyTorchTrial, determined.LegacyTrial)
    assert isinstance(determined.pytorch.LRScheduler.StepMode, type)


def test_pytorch_is_imported_without_optional_packages() -> None:
    script = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("tensorboard", "apex", "horovod"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())
import determined.pytorch, determined.pytorch.experimental, determined.pytorch.samplers
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=100)


def test_a_bare_import_reaches_tensorboard_and_load_without_torch() -> None:
    statement = "import determined as det\ndet.tensorboard.get_base_path\ndet.load"
    assert _loaded_after(statement) == []
    assert {"tensorboard", "load"} <= set(dir(determined))
    assert not hasattr(determined, "no_such_module")


def test_listing_names_shows_those_that_are_imported_late() -> None:
    assert {"test_one_batch", "client"} <= set(dir(determined.experimental))
    assert "Determined" in dir(determined.experimental.client)


def test_the_client_has_the_same_classes_under_all_its_names(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    client = determined.experimental.client
    older = importlib.import_module("determined.common.experimental")
    for name in older.__all__:
        assert getattr(older, name) is getattr(client, name)
        assert getattr(determined.experimental, name) is getattr(client, name)
    for word in ("checkpoint", "determined", "experiment", "metrics", "model", "project", "trial"):
        module = importlib.import_module(f"determined.common.experimental.{word}")
        assert all(getattr(module, name) is getattr(client, name) for name in module.__all__)
    assert determined.experimental.checkpoint.Checkpoint is client.Checkpoint
    assert determined.experimental.model.Model is client.Model
    assert determined.experimental.metrics.TrialMetrics is client.TrialMetrics
    with pytest.raises(AttributeError, match="no_such_name"):
        client.no_such_name  # noqa: B018  # looked up for its error
    client.Determined(master="http://cluster:8080", home=tmp_path)
    documented("`client.login(master=...)`, or `DET_MASTER`", caplog.records[-1].getMessage())


def test_horovod_is_asked_for_when_it_is_used() -> None:
    from determined.horovod import hvd

    hvd.require_horovod_type("torch", "a trial asks for it")
    with pytest.raises(ImportError) as error:
        hvd.rank()
    documented("Using `determined.horovod.hvd` without Horovod", str(error.value))
