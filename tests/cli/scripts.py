"""Scripts for experiments that commands are tried on."""

from __future__ import annotations

# Reports twenty steps, validates and saves at each tenth, and prints what it does.
STEPS = """
import sys, time
import determined as det
from determined import core

SECONDS = 0.0

with core.init() as ctx:
    info = det.get_cluster_info()
    steps = 0
    if info.latest_checkpoint:
        with ctx.checkpoint.restore_path(info.latest_checkpoint) as path:
            steps = int((path / "state").read_text())
    print("\\x1b[31mstarts\\x1b[0m at", steps, "with", info.trial.hparams, flush=True)
    while steps < 20:
        steps += 1
        time.sleep(SECONDS)
        ctx.train.report_training_metrics(steps, {"loss": 1 / steps, "zero": 0})
        if steps % 10 == 0:
            print(f"WARNING: reached {steps}", flush=True)
            lr = info.trial.hparams.get("lr", 0.5)
            ctx.train.report_validation_metrics(steps, {"loss": lr + 1 / steps, "nothing": 0})
            with ctx.checkpoint.store_path({"steps_completed": steps}) as (path, _):
                (path / "state").write_text(str(steps))
        if ctx.preempt.should_preempt():
            break
    print("ends at", steps, flush=True)
"""

# Runs until it is told to stop.
ENDLESS = """
import time
from determined import core
with core.init() as ctx:
    print("is running", flush=True)
    steps = 0
    while not ctx.preempt.should_preempt():
        steps += 1
        ctx.train.report_training_metrics(steps, {"loss": 1.0})
        time.sleep(0.02)
"""

FAILING = """
def train():
    raise ValueError("the third layer is missing")
print("about to fail", flush=True)
train()
"""
