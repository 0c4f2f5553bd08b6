"""The names users import, and what an import costs."""

from __future__ import annotations

import subprocess
import sys

import determined

_HEAVY = ("torch", "numpy", "tensorboard", "fsspec", "psutil", "rich")


def _loaded_after(statement: str) -> list[str]:
    script = f"import sys\n{statement}\nprint([m for m in {_HEAVY!r} if m in sys.modules])"
    answer = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60
    )
    return [str(name) for name in eval(answer.stdout)]


def test_importing_the_package_loads_nothing_heavy() -> None:
    statement = "import determined, determined.util, determined.core, determined.experimental"
    assert _loaded_after(statement) == []


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
