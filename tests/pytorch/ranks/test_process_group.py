from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from determined import core, pytorch
from tests.support.workers import run_workers

pytestmark = [pytest.mark.multiprocess]


def _meet_although_the_port_is_taken() -> tuple[float, bool]:
    taken = socket.socket()
    if os.environ["RANK"] == "0":
        taken.bind(("", int(os.environ["MASTER_PORT"])))
        taken.listen()
    with taken, pytorch.init(seed=1):
        value = torch.ones(1)
        dist.all_reduce(value)
    return value.item(), dist.is_initialized()


def test_ranks_meet_although_the_launchers_port_was_taken() -> None:
    found = run_workers(2, _meet_although_the_port_is_taken, process_group=False)
    assert found == [(2.0, False), (2.0, False)]


def _timeout_of_the_store() -> float:
    with pytorch.init(seed=1):
        store: Any = dist.distributed_c10d._get_default_store()
        return float(store.timeout.total_seconds())


@pytest.mark.parametrize("is_on_one_machine", [True, False])
def test_ranks_wait_for_each_other_as_long_as_configured(
    is_on_one_machine: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DET_COLLECTIVE_TIMEOUT", "77")
    if is_on_one_machine:
        monkeypatch.setenv("DET_LAUNCH_DIR", str(tmp_path))
    assert run_workers(2, _timeout_of_the_store, process_group=False) == [77.0, 77.0]


def _refuse_a_group_of_another_size() -> str:
    alone = core.DummyDistributedContext()
    try:
        with pytorch.init(distributed=alone):
            return "started"
    except ValueError as error:
        return str(error)


def test_ranks_and_group_must_be_as_many() -> None:
    for message in run_workers(2, _refuse_a_group_of_another_size):
        assert message == "`distributed` has 1 ranks, but torch's process group has 2."


def test_ranks_without_a_launcher_need_a_group(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ValueError, match="torchrun"), pytorch.init():
        pass
