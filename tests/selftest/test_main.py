"""The whole: on this machine, with everything broken, and on a device that is not the CPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import accelerator
from tests.support.fake_gpus import FakeGpu, install_nvidia

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]  # many processes, one after another

# Comes with `import torch` into every process of a check.
_SABOTAGE = """
import os

def load():
    import torch
    what = os.environ["SABOTAGE"]
    if what == "ranks":
        torch.set_rng_state = lambda state: None  # a resumed run draws anew
        from torch.nn.parallel import DistributedDataParallel as DDP
        forward = DDP.forward

        def alone(self, *args, **kwargs):
            with self.no_sync():
                return forward(self, *args, **kwargs)

        DDP.forward = alone
        from torch.distributed import fsdp
        shard = fsdp.fully_shard

        def unshared(module, **options):
            shard(module, **options)
            module.set_requires_gradient_sync(False)
            return module

        fsdp.fully_shard = unshared
    if what == "waits":
        functional = torch.nn.functional
        loss_of = functional.mse_loss

        def waiting(*args, **kwargs):
            loss = loss_of(*args, **kwargs)
            loss.item()
            return loss

        functional.mse_loss = waiting
"""


def _sabotage(folder: Path, what: str) -> dict[str, str]:
    info = folder / "sabotage-0.dist-info"
    info.mkdir()
    (folder / "sabotage.py").write_text(_SABOTAGE)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: sabotage\nVersion: 0\n")
    (info / "entry_points.txt").write_text("[torch.backends]\nsabotage = sabotage:load\n")
    path = os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH")]))
    return {"PYTHONPATH": path, "SABOTAGE": what}


def _selftest(checks: str, environment: dict[str, str], *options: str) -> dict[str, list[str]]:
    """Return verdict and finding by check, and by device where it is not the first."""
    command = [sys.executable, "-m", "determined.selftest", "--json", *options]
    command += [word for check in checks.split() for word in ("--check", check)]
    done = subprocess.run(
        command, env=environment | {"OMP_NUM_THREADS": "1"}, capture_output=True, text=True
    )
    answer = json.loads(done.stdout)
    assert answer["machine"]["torch"].startswith("2.")
    rows: dict[str, list[str]] = {}
    for row in answer["results"]:
        name = row["check"] if row["check"] not in rows else f"{row['check']} {row['device']}"
        rows[name] = [row["verdict"], row["found"]]
    assert list(dict.fromkeys(name.split()[0] for name in rows)) == checks.split()
    assert done.returncode == int(any(verdict == "FAILS" for verdict, _ in rows.values()))
    return rows


def test_all_holds_on_the_cpu() -> None:
    rows = _selftest("devices resume waits ddp-gloo fsdp slots", dict(os.environ))
    assert {check: verdict for check, (verdict, _) in rows.items()} == {
        "devices": "holds",
        "resume": "holds",
        "waits": "not run",
        "ddp-gloo": "not run",
        "fsdp": "holds",
        "slots": "holds",
    }, rows
    assert "exact=True (deterministic algorithms)" in rows["resume"][1]


def test_what_is_broken_does_not_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install_nvidia(tmp_path, monkeypatch).has(FakeGpu("GPU-aa"), FakeGpu("GPU-bb"))
    environment = {**os.environ, **_sabotage(tmp_path, "ranks")}
    rows = _selftest("devices resume ddp fsdp slots", environment)
    assert {verdict for verdict, _ in rows.values()} == {"FAILS"}, rows
    assert "but torch" in rows["devices"][1]
    assert "after the resume" in rows["resume"][1]
    assert "Ranks must hold equal weights" in rows["ddp"][1]  # the library itself looks
    assert "away from one process" in rows["fsdp"][1]
    assert "sees no GPU" in rows["slots"][1]


@pytest.mark.skipif(accelerator.reason_to_skip() is not None, reason="no simulated accelerator")
def test_devices_that_are_not_the_cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = _selftest("resume waits amp saving ddp ddp-gloo fsdp", accelerator.environment())
    assert rows.pop("ddp-gloo") == ["not run", "gloo has no collectives for simulated"]
    assert {verdict for verdict, _ in rows.values()} == {"holds"}, rows
    assert "resume simulated:1" in rows
    for check in ("ddp", "fsdp"):
        assert "2 ranks through simulated have the same weights" in rows[check][1]
    assert "none per batch" in rows["waits"][1]
    assert "float16: loss" in rows["amp"][1]
    for name, value in _sabotage(tmp_path, "waits").items():
        monkeypatch.setenv(name, value)
    rows = _selftest("waits", accelerator.environment(), "--device=simulated:0")
    assert rows["waits"][0] == "FAILS"
    assert rows["waits"][1].startswith("1.00 waits per batch; most often at ")
