"""Slots: a small experiment on the platform, whose trials say which device they got."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

from determined.experimental import client
from determined.gpu import CUDA, ROCM
from determined.platform.homes.home import Home
from determined.platform.machines.slots import find_slots
from determined.platform.supervisor import presence
from determined.selftest._result import DoesNotHoldError

_MOST_TRIALS = 4
# Waits for the others, so that no slot can be used twice.
_SCRIPT = """
import json, pathlib, time
import torch
import determined as det
from determined import core

folder, together = pathlib.Path({folder!r}), {together}
with core.init() as context:
    info = det.get_cluster_info()
    count = torch.cuda.device_count()
    uuids = [str(torch.cuda.get_device_properties(n).uuid) for n in range(count)]
    seen = dict(slots=info.slot_ids, given=info.gpu_uuids, uuids=uuids)
    draft = folder / f"{{info.trial.trial_id}}.draft"
    draft.write_text(json.dumps(seen))
    draft.rename(draft.with_suffix(".json"))
    deadline = time.monotonic() + 60
    while len(list(folder.glob("*.json"))) < together and time.monotonic() < deadline:
        time.sleep(0.05)
    context.train.report_validation_metrics(1, {{"loss": 0.0}})
"""


def slots(device: torch.device, folder: Path) -> str:
    """Run as many trials at once as there are slots, and compare what they got."""
    machine = find_slots()
    if not machine.slots:
        raise DoesNotHoldError(" ".join(machine.skipped) or "this machine has no slots")
    together = min(_MOST_TRIALS, len(machine.slots))
    seen = _run_trials(folder, together)
    if len(seen) != together:
        raise DoesNotHoldError(f"{len(seen)} of {together} trials ran at once")
    given = [slot for trial in seen for slot in trial["slots"]]
    if len(set(given)) != together:
        raise DoesNotHoldError(f"trials that ran at once got the slots {sorted(given)}")
    if machine.kind in (CUDA, ROCM):
        for trial in seen:
            _check_visible(trial, machine.kind)
    kind = {CUDA: "CUDA GPUs", ROCM: "ROCm GPUs"}.get(machine.kind, f"{machine.kind} slots")
    return f"{together} trials at once had {together} of {len(machine.slots)} {kind}"


def _check_visible(trial: dict[str, Any], kind: str) -> None:
    (given,) = trial["given"]
    seen = [uuid if uuid.startswith("GPU-") else f"GPU-{uuid}" for uuid in trial["uuids"]]
    # Of a MIG device and on ROCm, torch and the driver do not agree on the form of UUIDs.
    is_comparable = kind == CUDA and not given.startswith("MIG-")
    if len(seen) != 1 or (is_comparable and seen != [given]):
        raise DoesNotHoldError(f"a trial with the slot of {given} sees {seen or 'no GPU'}")


def _run_trials(folder: Path, together: int) -> list[dict[str, Any]]:
    code, answers = folder / "code", folder / "answers"
    code.mkdir()
    answers.mkdir()
    script = _SCRIPT.format(folder=str(answers), together=together)
    (code / "train.py").write_text(script)
    search = {"name": "random", "metric": "loss", "max_trials": together}
    config = {
        "name": "selftest",
        "entrypoint": "python3 train.py",
        "searcher": {**search, "max_concurrent_trials": together},
        "resources": {"slots_per_trial": 1},
        "max_restarts": 0,
    }
    try:
        experiment = client.create_experiment(config, code)
        state = experiment.wait(interval=0.2)
        if state != client.ExperimentState.COMPLETED:
            raise DoesNotHoldError(f"the experiment ended as {state.value}")
    finally:
        presence.stop(Home(folder / "home"))
    return [json.loads(path.read_text()) for path in sorted(answers.glob("*.json"))]
