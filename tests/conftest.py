"""Hygiene for every test: environment, seeds, signals and process groups stay as they were."""

from __future__ import annotations

import gc
import os
import random
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hypothesis
import numpy as np
import pytest
import torch
import torch.distributed

from tests.support.faults import factor

# A busy machine makes any example slow; what must be quick is measured in benchmarks/. The short
# form takes the same examples each time; the long form (`make test-faults`) draws others.
hypothesis.settings.register_profile("short", deadline=None, derandomize=factor() == 1)
hypothesis.settings.load_profile("short")

# Under nohup and in the background of a shell signals are ignored, and so they would be in all
# processes that tests start.
for _number, _usual in (
    (signal.SIGHUP, signal.SIG_DFL),
    (signal.SIGINT, signal.default_int_handler),
    (signal.SIGTERM, signal.SIG_DFL),
):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, _usual)

# What tests train is nothing to remember; those of tracking itself switch it on.
os.environ["DET_TRACKING"] = "off"

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Garbage collections look at what tests make, not at a million objects of modules."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _clean_process(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    environment = dict(os.environ)
    handlers = {number: signal.getsignal(number) for number in _SIGNALS}
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)
    # No test writes into the developer's own data directory.
    monkeypatch.setenv("DET_STORAGE", str(tmp_path / "storage"))
    yield
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
    for number, handler in handlers.items():
        signal.signal(number, handler)
    os.environ.clear()
    os.environ.update(environment)


@pytest.fixture(scope="session")
def s3_endpoint() -> Iterator[str]:
    """A real HTTP server on loopback that speaks S3."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture(scope="session")
def s3_client(s3_endpoint: str) -> Iterator[Any]:
    import boto3

    client = boto3.client(
        "s3",
        endpoint_url=s3_endpoint,
        aws_access_key_id="key",
        aws_secret_access_key="secret",
        region_name="us-east-1",
    )
    yield client
    client.close()
