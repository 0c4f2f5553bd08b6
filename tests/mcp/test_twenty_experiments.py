"""Twenty experiments through JSON alone, while the server and the supervisor are killed."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from mcp import Client, MCPError, StdioServerParameters, stdio_client
from mcp.types import TextContent

from tests.support.lab import Lab

pytestmark = [pytest.mark.slow, pytest.mark.multiprocess, pytest.mark.timeout(300)]

# Each step reports; `gate` names a file that the third step waits for.
_SCRIPT = """
import pathlib, time
import determined as det
from determined import core

info = det.get_cluster_info()
given = info.trial.hparams
gate = pathlib.Path(given["gate"]) if "gate" in given else None

def save(context, step):
    with context.checkpoint.store_path({"steps_completed": step}) as (path, _):
        (path / "step").write_text(str(step))

def train(context):
    step = 0
    if info.latest_checkpoint:
        with context.checkpoint.restore_path(info.latest_checkpoint) as path:
            step = int((path / "step").read_text())
    while step < given.get("steps", 4):
        step += 1
        loss = given.get("width", 1) / step * (1 + info.trial.trial_seed % 97 / 1e4)
        context.train.report_training_metrics(step, {"loss": loss})
        context.train.report_validation_metrics(step, {"loss": loss})
        if given.get("fails") and step == 2:
            raise RuntimeError("the width is too large")
        while gate and step == 3 and not gate.exists() and not context.preempt.should_preempt():
            time.sleep(0.02)
        if context.preempt.should_preempt():
            break
    save(context, step)

print("width is", given.get("width"))
with core.init() as context:
    train(context)
"""
_SINGLE = {"name": "single", "metric": "loss"}


class Assistant:
    """Knows the home and the code; everything else goes through the protocol."""

    def __init__(self, lab: Lab, code: Path) -> None:
        self._lab = lab
        self.code = code
        self.client: Client | None = None

    @contextlib.asynccontextmanager
    async def connected(self) -> AsyncIterator[int]:
        """Start a server and yield its process id."""
        known = {child.pid for child in psutil.Process().children()}
        server = StdioServerParameters(
            command=sys.executable,
            args=["-m", "determined.cli", "mcp", "--allow-delete"],
            env={**os.environ, "DET_HOME": str(self._lab.home.path)},
        )
        async with Client(stdio_client(server)) as self.client:
            (started,) = [c.pid for c in psutil.Process().children() if c.pid not in known]
            yield started

    async def call(self, tool: str, **arguments: Any) -> Any:
        assert self.client is not None
        answer = await self.client.call_tool(tool, arguments)
        (content,) = answer.content
        assert isinstance(content, TextContent)
        assert not answer.is_error, content.text
        return json.loads(content.text)

    async def create(self, name: str, **config: Any) -> int:
        whole = {"name": name, "entrypoint": "python3 script.py", "max_restarts": 0, **config}
        whole.setdefault("searcher", _SINGLE)
        answer = await self.call(
            "create_experiment", folder=str(self.code), config=whole, key=f"key of {name}"
        )
        return int(answer["experiment_id"])

    async def ended(self, experiment_id: int, state: str = "COMPLETED") -> Any:
        """Wait for the end, in as many calls as it takes."""
        for _ in range(40):
            found = await self.call("wait_for_experiment", experiment_id=experiment_id, seconds=5)
            if found["state"] in ("COMPLETED", "CANCELED", "ERROR"):
                assert found["state"] == state, found
                return found
        raise AssertionError(found)


def test_twenty_experiments_survive_the_server_and_the_supervisor(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DET_SLOTS", "4")
    code = tmp_path / "assistant"
    code.mkdir()
    (code / "script.py").write_text(_SCRIPT)
    numbers = asyncio.run(play(lab, Assistant(lab, code), tmp_path / "gate"))
    assert len(set(numbers.values())) == 20
    records = {record.name: record for record in lab.service.reader.experiments().rows}
    assert {name: record.id for name, record in records.items()} == numbers
    for name, record in records.items():
        for trial in lab.trials(record.id):
            reports = list(lab.service.reader.metrics.reports(trial.id, "training"))
            steps = [report.steps_completed for report in reports]
            assert steps == list(range(1, trial.total_batches + 1)), name


async def play(lab: Lab, assistant: Assistant, gate: Path) -> dict[str, int]:
    numbers: dict[str, int] = {}

    async def create(name: str, **config: Any) -> int:
        numbers[name] = await assistant.create(name, **config)
        return numbers[name]

    async with assistant.connected() as server:
        for width in range(1, 9):
            await create(f"plain {width}", hyperparameters={"width": width})
        paused = await create("paused", hyperparameters={"gate": str(gate)})
        with no_supervisor(lab):
            lost = asyncio.ensure_future(create("lost", hyperparameters={"width": 9}))
            await until(lab, lambda: lab.service.reader.has_unanswered())
            os.kill(server, signal.SIGKILL)  # the request is stored, its answer will never come
            with pytest.raises(MCPError):
                await lost
    assert "lost" not in numbers

    async with assistant.connected() as server:
        await create("lost", hyperparameters={"width": 9})
        assert len((await assistant.call("list_experiments", name="lost"))["experiments"]) == 1
        await assistant.ended(numbers["lost"])
        await pause_and_activate(assistant, lab, paused, gate)
        failed = await create("failed", hyperparameters={"fails": True})
        await explain_failure(assistant, failed)
        lab.kill_supervisor()
        os.kill(server, signal.SIGKILL)

    async with assistant.connected():
        grid = {"type": "categorical", "vals": [1, 2]}
        first = await create("grid", searcher=grid_searcher(), hyperparameters={"width": grid})
        for name in ("small", "large"):
            size = {"width": 1 if name == "small" else 50}
            shared = {"experiment_seed": 1}
            await create(name, repeat=3, hyperparameters=size, reproducibility=shared)
        await create("search", **search())
        for number in range(4):
            await create(f"more {number}", hyperparameters={"width": number})
        endless = await create("endless", hyperparameters={"gate": str(gate) + " never"})
        await assistant.call("kill_experiment", experiment_id=endless)
        await assistant.ended(endless, "CANCELED")
        for name in numbers.keys() - {"failed", "endless"}:
            await assistant.ended(numbers[name])
        await read_results(assistant, numbers, first)
    return numbers


@contextlib.contextmanager
def no_supervisor(lab: Lab) -> Iterator[None]:
    """Kill it, and let none start: commands are stored, and nobody answers."""
    lab.kill_supervisor()
    with lab.home.supervisor_lock.open("r+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


async def until(lab: Lab, condition: Callable[[], bool]) -> None:
    for _ in range(3000):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError(lab.account())


async def pause_and_activate(assistant: Assistant, lab: Lab, number: int, gate: Path) -> None:
    """Pause at the third step, lose the supervisor, and go on from the checkpoint."""
    (trial,) = (await assistant.call("list_trials", experiment_id=number))["trials"]
    while (await assistant.call("describe_trial", trial_id=trial["id"])).get("batches", 0) < 3:
        await asyncio.sleep(0.05)
    answer = await assistant.call("pause_experiment", experiment_id=number)
    assert answer["state"] == "PAUSED"
    lab.kill_supervisor()
    while "ended" not in (await assistant.call("explain_trial", trial_id=trial["id"]))["runs"][-1]:
        await asyncio.sleep(0.05)
    gate.touch()
    await assistant.call("activate_experiment", experiment_id=number)
    await assistant.ended(number)
    told = await assistant.call("explain_trial", trial_id=trial["id"])
    assert [run["from_batch"] for run in told["runs"]] == [0, 3]


async def explain_failure(assistant: Assistant, number: int) -> None:
    found = await assistant.ended(number, "ERROR")
    assert "the width is too large" in found["first_failure"]["traceback"][-1]
    told = await assistant.call("explain_trial", trial_id=found["first_failure"]["trial_id"])
    assert told["end_of_failed_run"][-1] == "RuntimeError: the width is too large"


async def read_results(assistant: Assistant, numbers: dict[str, int], grid: int) -> None:
    compared = await assistant.call("compare_experiments", experiment_ids=[grid])
    assert [row["hparams"]["width"] for row in compared["trials"]] == [1, 2]
    pair = [numbers["small"], numbers["large"]]
    judged = await assistant.call("compare_experiments", experiment_ids=pair, significance=True)
    assert "is better than" in judged["comparisons"][0]["sentence"]
    best = compared["trials"][0]["trial_id"]
    series = await assistant.call("read_metrics", trial_id=best)
    assert [step for step, _ in series["series"]["loss"]["points"]] == [1, 2, 3, 4]
    log = await assistant.call("read_logs", experiment_id=grid, search="width is 2")
    assert log["lines"] == [f"[trial {compared['trials'][1]['trial_id']}] width is 2"]
    saved = await assistant.call("list_checkpoints", experiment_id=grid)
    assert (Path(saved["checkpoints"][0]["path"]) / "step").read_text() == "4"
    told = []
    for trial in (await assistant.call("list_trials", experiment_id=numbers["search"]))["trials"]:
        told.append(await assistant.call("explain_trial", trial_id=trial["id"]))
    assert any("stopped" in " ".join(one["decisions"]) for one in told), told


def grid_searcher() -> dict[str, Any]:
    return {"name": "grid", "metric": "loss"}


def search() -> dict[str, Any]:
    halving = {"name": "async_halving", "metric": "loss", "time_metric": "batches"}
    return {
        "searcher": {
            **halving,
            "max_trials": 4,
            "max_time": 4,
            "num_rungs": 2,
            "divisor": 2,
            "max_concurrent_trials": 1,
        },
        "reproducibility": {"experiment_seed": 1},
        "hyperparameters": {"width": {"type": "double", "minval": 1, "maxval": 9}, "steps": 4},
    }
