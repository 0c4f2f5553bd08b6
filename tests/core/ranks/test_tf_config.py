from __future__ import annotations

import json
import os
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from determined.core._distributed import DistributedContext
from determined.core.ranks.tf_config import read_tf_config
from tests.support.workers import run_workers


def config(
    *workers: str, index: Any = 0, kind: str = "worker", others: dict[str, Any] | None = None
) -> str:
    cluster = {"worker": list(workers), **(others or {})}
    return json.dumps({"cluster": cluster, "task": {"type": kind, "index": index}})


def test_each_worker_of_a_machine_has_a_local_rank() -> None:
    found = read_tf_config(config("a:1", "a:2", "b:1", "[::1]:5", index=2))
    assert found == {
        "rank": 2,
        "size": 4,
        "local_rank": 0,
        "local_size": 1,
        "cross_rank": 1,
        "cross_size": 3,
        "chief_ip": "a",
    }
    second = read_tf_config(config("a:1", "a:2", "b:1", index=1))
    assert (second["local_rank"], second["local_size"], second["cross_rank"]) == (1, 2, 0)


@pytest.mark.parametrize("kind", ["chief", "ps", "evaluator"])
def test_only_workers_are_accepted(kind: str) -> None:
    with pytest.raises(RuntimeError, match=f"task type '{kind}'.*only workers"):
        read_tf_config(config("a:1", kind=kind))
    with pytest.raises(RuntimeError, match="only workers"):
        read_tf_config(config("a:1", others={kind: ["b:1"]}))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"cluster": []}',
        config(),
        config("a:1", index=1),
        config("a:1", index="0"),
        config("a:1", index=-1),
    ],
)
def test_what_it_should_be_is_shown(text: str) -> None:
    with pytest.raises(ValueError, match="TF_CONFIG must be JSON like"):
        read_tf_config(text)


def test_it_must_be_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TF_CONFIG", raising=False)
    with pytest.raises(KeyError, match="TF_CONFIG"):
        DistributedContext.from_tf_config()


def test_without_tensorflow_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TF_CONFIG", config("a:1"))
    monkeypatch.setitem(sys.modules, "tensorflow", None)
    with pytest.raises(ImportError, match="pip install tensorflow"):
        DistributedContext.from_tf_config()


def _connect(workers: list[str]) -> tuple[list[int], str]:
    """Meet as two workers of this machine; only TensorFlow is a stand-in."""
    os.environ["TF_CONFIG"] = config(*workers, index=int(os.environ["RANK"]))
    distribute = SimpleNamespace(MultiWorkerMirroredStrategy=lambda: "strategy")
    sys.modules["tensorflow"] = SimpleNamespace(distribute=distribute)  # type: ignore[assignment]
    context, strategy = DistributedContext.from_tf_config()
    with context:
        return context.allgather(context.local_rank), strategy


@pytest.mark.multiprocess
@pytest.mark.parametrize(
    ("workers", "local_ranks"),
    [(["localhost:1", "localhost:2"], [0, 1]), (["localhost:1", "127.0.0.1:2"], [0, 0])],
)
def test_workers_meet_and_get_the_strategy(workers: list[str], local_ranks: list[int]) -> None:
    results = run_workers(2, _connect, workers, process_group=False)
    assert results == [(local_ranks, "strategy")] * 2
