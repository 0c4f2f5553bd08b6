"""A lab whose runs go to a cluster, and a trial that shows whether anything was lost or doubled."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any

import psutil

from determined.platform.machines.nodes import load_nodes
from determined.store import Run
from tests.support.lab import Lab

# Computes a chain of numbers, each from the one before, reports and saves them all.
CHAIN = """
import json, os, pathlib, time
import determined as det
from determined import core

def main(ctx):
    info = det.get_cluster_info()
    step, value = 0, 1.0
    if info.latest_checkpoint:
        with ctx.checkpoint.restore_path(info.latest_checkpoint) as path:
            step, value = json.loads((path / "state").read_text())
    data = info.user_data
    gate = pathlib.Path(data["gate"])
    print("starts at", step, flush=True)
    if data["waits_for_decisions"]:
        wait_for_decision(ctx, pathlib.Path(f"{gate}-{info.trial.trial_id}-{step}"))
    while step < data["length"]:
        while step >= data["until_gate"] and not gate.exists():
            if ctx.preempt.should_preempt():
                return
            time.sleep(0.02)
        step, value = step + 1, (value * 1.37 + info.trial.hparams.get("x", 0.5)) % 1.0
        ctx.train.report_validation_metrics(step, {"loss": value, "epochs": step})
        print("step", step, flush=True)
        with ctx.checkpoint.store_path({"steps_completed": step}) as (path, _):
            (path / "state").write_text(json.dumps([step, value]))
        if data["waits_for_decisions"]:
            wait_for_decision(ctx, pathlib.Path(f"{gate}-{info.trial.trial_id}-{step}"))
        if ctx.preempt.should_preempt():
            return

def wait_for_decision(ctx, answer):
    while not answer.exists():
        time.sleep(0.01)
    while answer.read_text() == "stop" and not ctx.preempt.should_preempt():
        time.sleep(0.01)

with core.init() as ctx:
    main(ctx)
"""


def chain(length: int, x: float = 0.5) -> list[float]:
    values = [1.0]
    for _ in range(length):
        values.append((values[-1] * 1.37 + x) % 1.0)
    return values[1:]


class ClusterLab(Lab):
    """Creates chains, and looks where they run. DET_NODE_DIR names a folder above all disks."""

    def chain(self, name: str, length: int = 12, until_gate: int = 6, **config: Any) -> int:
        """Create an experiment that computes a chain, with a halt before its end."""
        data: dict[str, Any] = {
            **{"gate": str(self.gate(name)), "length": length, "until_gate": until_gate},
            # Else a trial goes on for as long as its search takes to stop it.
            "waits_for_decisions": "max_time" in config.get("searcher", {}),
        }
        return self.create(CHAIN, name=name, data=data, **config)

    def gate(self, name: str) -> Path:
        return self.folder / f"gate-{name}"

    def until_halted(self, experiment_id: int, steps: int = 6, runs: int = 1) -> Run:
        """Wait until the run of an experiment's trial has come to its halt; return the run."""

        def is_there() -> bool:
            found = self.runs(experiment_id)
            return len(found) == runs and f"step {steps}\n" in self.log(found[-1])

        self.until(is_there)
        return self.runs(experiment_id)[-1]

    def losses(self, experiment_id: int) -> list[tuple[int, float]]:
        (trial,) = self.trials(experiment_id)
        rows = self.service.reader.metrics.reports(trial.id, "validation")
        return [(row.steps_completed, row.metrics["loss"]) for row in rows]

    def node_of(self, run: Run) -> str:
        table = load_nodes(self.home.cluster)
        assert table is not None
        slots = {slot.id: slot.node for node in table.nodes for slot in node.slots}
        return slots[run.slots[0]]

    def processes(self) -> list[psutil.Process]:
        """Those of this home, and those of its runs on the simulated nodes."""
        disks = os.environ["DET_NODE_DIR"]
        found = {process.pid: process for process in super().processes()}
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if disks in process.environ().get("DET_RUN_DIR", ""):
                    found[process.pid] = process
        return list(found.values())


def weights(lab: Lab, experiment_id: int) -> list[bytes]:
    """The weights of the newest checkpoint of an experiment."""
    import torch

    newest = max(lab.checkpoints(experiment_id), key=lambda c: c.steps_completed)
    path = lab.home.checkpoints / newest.uuid / "state_dict.pth"
    (model,) = torch.load(path, weights_only=True)["models_state_dict"]
    return [tensor.cpu().numpy().tobytes() for tensor in model.values()]


def let_one_go_on(lab: ClusterLab, experiment_id: int) -> int:
    """Let one trial take its next step once all others wait; return how many steps were taken.

    Which trials a search stops depends on the order of their reports: this way it is the same
    wherever and however often they run.
    """
    waiting: list[tuple[int, int, Path]] = []
    is_all = True
    total = 0
    for trial in lab.trials(experiment_id):
        steps = len(_validations(lab, trial.id))
        total += steps
        answer = Path(f"{lab.gate('search')}-{trial.id}-{steps}")
        if trial.state == "ACTIVE" and not answer.exists():
            waiting.append((steps, trial.id, answer))
        elif trial.state not in ("COMPLETED", "CANCELED", "ERROR"):
            is_all = False  # it is on its way to the next step, or to its end
            if trial.state != "ACTIVE" and not answer.exists():
                _put(answer, "stop")
    if waiting and is_all:
        _put(min(waiting)[-1], "go")
    return total


def _put(answer: Path, word: str) -> None:
    draft = answer.with_suffix(".draft")
    draft.write_text(word)
    draft.replace(answer)


def outcomes(lab: Lab, experiment_id: int) -> list[tuple[Any, ...]]:
    """The trials of an experiment with their reports, to compare with another lab's."""
    return [
        (
            trial.hparams,
            trial.state,
            trial.restarts,
            [(m.steps_completed, m.metrics) for m in _validations(lab, trial.id)],
        )
        for trial in lab.trials(experiment_id)
    ]


def _validations(lab: Lab, trial_id: int) -> list[Any]:
    return list(lab.service.reader.metrics.reports(trial_id, "validation"))
