"""Object stores that drop connections, answer late or not at all: tried again, never half seen."""

from __future__ import annotations

import itertools
import random
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from determined import pytorch
from determined.errors import CheckpointError, CheckpointNotFound
from determined.pytorch import Batch
from determined.storage import S3StorageManager
from tests.support.faults import factor
from tests.support.flaky_proxy import KINDS, FlakyProxy, Plan, first, flaky_proxy
from tests.support.resumable import ResumableTrial, fingerprint
from tests.support.resumable import train as train_locally
from tests.support.waiting import eventually

PAUSES = [0.2, 0.8, 3.2]
ALWAYS = 1 << 30


@pytest.fixture
def proxy(s3_endpoint: str) -> Iterator[FlakyProxy]:
    with flaky_proxy(s3_endpoint) as made:
        yield made


@pytest.fixture
def bucket(s3_client: Any) -> str:
    name = f"bucket-{uuid.uuid4()}"
    s3_client.create_bucket(Bucket=name)
    return name


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Do not pause, but note for how long it would have been."""
    noted: list[float] = []
    monkeypatch.setattr("determined.storage.remote.retry.time", SimpleNamespace(sleep=noted.append))
    # Libraries below have pauses of their own.
    monkeypatch.setattr("s3fs.core.S3FileSystem.retries", 1)
    monkeypatch.setattr("botocore.retryhandler.delay_exponential", lambda *_, **__: 0)
    return noted


def config(url: str, bucket: str) -> dict[str, Any]:
    return {
        "type": "s3",
        "bucket": bucket,
        "access_key": "key",
        "secret_key": "secret",
        "endpoint_url": url,
    }


def manager(proxy: FlakyProxy, bucket: str) -> S3StorageManager:
    return S3StorageManager(bucket, "key", "secret", proxy.url)


def folder(tmp_path: Path, content: bytes = b"w" * 5000) -> Path:
    path = tmp_path / "src"
    path.mkdir(exist_ok=True)
    (path / "weights").write_bytes(content)
    (path / "metadata.json").write_bytes(b'{"run_id": "run"}')
    return path


REQUESTS = {
    "anything": ("", ""),
    "file": ("PUT", "weights"),
    "manifest": ("PUT", "manifest"),
    "download": ("GET", "weights"),
    "listing": ("GET", "list-type"),
}
TROUBLE = [
    *(("anything", kind) for kind in KINDS),
    ("file", "drop"),
    ("manifest", "drop after"),
    ("download", "half"),
    ("listing", "503"),
]
if factor() > 1:
    TROUBLE = list(itertools.product(REQUESTS, KINDS))


@pytest.mark.timeout(90)
@pytest.mark.parametrize(("request_kind", "kind"), TROUBLE)
def test_passing_trouble_is_overcome(
    proxy: FlakyProxy,
    bucket: str,
    tmp_path: Path,
    pauses: list[float],
    request_kind: str,
    kind: str,
) -> None:
    storage = manager(proxy, bucket)
    proxy.fail(first(2, kind, *REQUESTS[request_kind]))
    storage.upload(folder(tmp_path), "one")
    assert [found.storage_id for found in storage.list()] == ["one"]
    with storage.restore_path("one") as restored:
        assert (restored / "weights").read_bytes() == b"w" * 5000
    storage.delete("one", ["**/*"])
    assert storage.list() == []
    assert any(fate == kind for *_, fate in proxy.seen)
    assert set(pauses) <= set(PAUSES)


@pytest.mark.timeout(90)
@pytest.mark.parametrize("kind", ["drop", "500", "garbage"])
def test_lasting_trouble_ends_after_growing_pauses_and_names_the_object(
    proxy: FlakyProxy, bucket: str, tmp_path: Path, pauses: list[float], kind: str
) -> None:
    storage = manager(proxy, bucket)
    storage.upload(folder(tmp_path), "good")
    proxy.fail(first(ALWAYS, kind, "PUT", "weights"))
    with pytest.raises(CheckpointError, match=rf"s3://{bucket}/bad/weights.*4 attempts"):
        storage.upload(folder(tmp_path), "bad")
    assert pauses == PAUSES
    proxy.stop_failing()
    assert [found.storage_id for found in storage.list()] == ["good"]
    with pytest.raises(CheckpointNotFound):
        storage.resources("bad")
    storage.upload(folder(tmp_path), "bad")
    assert [found.storage_id for found in storage.list()] == ["good", "bad"]


def from_request(begin: int, kind: str) -> Plan:
    return lambda method, path, number: kind if number >= begin else None


@pytest.mark.timeout(120)
@pytest.mark.parametrize("kind", ["drop after", "drop", "503"][: 1 if factor() == 1 else 3])
def test_an_outage_at_any_request_of_a_save_leaves_nothing_half_visible(
    proxy: FlakyProxy, bucket: str, tmp_path: Path, pauses: list[float], kind: str
) -> None:
    storage, reader = manager(proxy, bucket), S3StorageManager(bucket, "key", "secret", proxy.url)
    storage.upload(folder(tmp_path), "good")
    count = 0
    while True:
        proxy.fail(from_request(count, kind))
        try:
            storage.upload(folder(tmp_path), f"bad-{count}")
        except CheckpointError:
            proxy.stop_failing()
            visible = [found.storage_id for found in reader.list()]
            # When only the answer to the last request was lost, the checkpoint is whole.
            assert visible in (["good"], ["good", f"bad-{count}"])
            if len(visible) == 2:
                assert kind == "drop after"
                assert reader.verify(f"bad-{count}")
                break
            storage.delete(f"bad-{count}", ["**/*"])
        else:
            break
        count += 3 if factor() == 1 else 1
    proxy.stop_failing()
    assert count >= 3
    assert reader.verify("good")


@pytest.mark.timeout(90)
def test_a_download_that_fails_leaves_nothing(
    proxy: FlakyProxy, bucket: str, tmp_path: Path, pauses: list[float]
) -> None:
    storage = manager(proxy, bucket)
    storage.upload(folder(tmp_path), "one")
    proxy.fail(first(ALWAYS, "half", "GET", "weights"))
    with pytest.raises(CheckpointError, match=f"s3://{bucket}/one/weights"):
        storage.download("one", tmp_path / "download")
    assert not (tmp_path / "download").exists()
    proxy.stop_failing()
    storage.download("one", tmp_path / "download")
    assert (tmp_path / "download" / "weights").stat().st_size == 5000


# Training into such a store.


def train(storage: Any, batches: int, trial_class: type[ResumableTrial], **fit: Any) -> Any:
    with pytorch.init(
        checkpoint_storage=storage, seed=7, run_id="run", enable_tensorboard_logging=False
    ) as context:
        trial = trial_class(context)
        pytorch.Trainer(trial, context).fit(
            max_length=Batch(batches), checkpoint_policy="none", progress=False, **fit
        )
    return fingerprint(trial)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("seed", range(1 * factor()))
def test_a_run_over_a_bad_line_ends_as_over_a_good_one(
    proxy: FlakyProxy, bucket: str, tmp_path: Path, pauses: list[float], seed: int
) -> None:
    draw = random.Random(seed)

    def plan(*_: object) -> str | None:
        """Not again soon: more failures in a row than there are attempts are no passing trouble."""
        is_soon = any(fate is not None for *_, fate in proxy.seen[-3:])
        return draw.choice(KINDS) if not is_soon and draw.random() < 0.25 else None

    proxy.fail(plan)
    place = config(proxy.url, bucket)
    train(place, 4, ResumableTrial, checkpoint_period=Batch(2))
    resumed = train(place, 7, ResumableTrial, latest_checkpoint="latest")
    assert sum(fate is not None for *_, fate in proxy.seen) > 3
    assert resumed.ends_like(train_locally(tmp_path / "local", 7))
    proxy.stop_failing()
    storage = manager(proxy, bucket)
    assert [found.metadata["steps_completed"] for found in storage.list("run")] == [2, 4, 7]
    assert all(storage.verify(found.storage_id) for found in storage.list("run"))


class Gated(ResumableTrial):
    """Lets the upload of its first checkpoint go on only when more batches were trained."""

    gate: threading.Event
    begun: threading.Event
    opens_at = 8

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, Any]:
        self.begun.set()
        if batch_idx == self.opens_at:
            self.gate.set()
        return super().train_batch(batch, epoch_idx, batch_idx)


@pytest.mark.timeout(90)
def test_training_goes_on_while_an_upload_waits(proxy: FlakyProxy, bucket: str) -> None:
    gate, begun = threading.Event(), threading.Event()
    # Not before training: a small file is written at the start, to see whether that is possible.
    proxy.fail(lambda method, *_: gate if method == "PUT" and begun.is_set() else None)
    trial_class = type("Trial", (Gated,), {"gate": gate, "begun": begun})
    train(config(proxy.url, bucket), 10, trial_class, checkpoint_period=Batch([2]))
    assert gate.is_set()
    storage = manager(proxy, bucket)
    assert [found.metadata["steps_completed"] for found in storage.list("run")] == [2, 10]


@pytest.mark.timeout(90)
@pytest.mark.parametrize("policy", ["raise", "continue"])
def test_an_outage_in_training_follows_the_policy(
    proxy: FlakyProxy, bucket: str, pauses: list[float], policy: str
) -> None:
    class Trial(ResumableTrial):
        def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, Any]:
            if batch_idx == 3:
                eventually(lambda: any("manifest" in p for m, p, _ in proxy.seen if m == "PUT"))
                proxy.fail(first(ALWAYS, "503"))
            if batch_idx == 6:
                eventually(lambda: len(pauses) >= 3 and is_quiet(proxy))
                proxy.stop_failing()
            return super().train_batch(batch, epoch_idx, batch_idx)

    place = config(proxy.url, bucket)
    fit = {"checkpoint_period": Batch([2, 5]), "async_checkpoint": policy == "continue"}
    storage = manager(proxy, bucket)
    if policy == "continue":
        train(place, 8, Trial, on_checkpoint_error="continue", **fit)
        assert storage.list("run")[-1].metadata["steps_completed"] == 8
    else:
        with pytest.raises(CheckpointError, match=f"s3://{bucket}/"):
            train(place, 8, Trial, **fit)
        proxy.stop_failing()
    assert storage.list("run")[0].metadata["steps_completed"] == 2
    assert all(storage.verify(found.storage_id) for found in storage.list("run"))


def is_quiet(proxy: FlakyProxy) -> bool:
    before = len(proxy.seen)
    time.sleep(0.3)
    return len(proxy.seen) == before
