"""What a program can see of its process is the same, warm and cold."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from determined.platform.runs.folder import RunFolder
from tests.platform.runs.warm.conftest import Bench

pytestmark = [pytest.mark.multiprocess, pytest.mark.timeout(600)]

_PROBE = Path(__file__).with_name("probe.py").read_text()


def probe(
    bench: Bench, *command: str, text: str = _PROBE, mention: str = "torch"
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Run the probe warm and cold; return what it saw."""
    seen = []
    files = {"probe.py": text, "inner/package/__init__.py": "", "inner/probe.py": text}
    files["torch_is_mentioned.py"] = mention
    for warm in (True, False):
        run = bench.lay_out(*command, files=files, warm=warm)
        (end,) = bench.run(run)
        assert end.exit_code == 0, run.log.read_text()
        content = (run.workdir / "seen.json").read_text()
        content = content.replace(str(run.path), "RUN")
        seen.append({**json.loads(content), "log": log_of(run)})
    return seen[0], seen[1]


def log_of(run: RunFolder) -> list[str]:
    return run.log.read_text().replace(str(run.path), "RUN").splitlines()


@pytest.mark.parametrize(
    "command",
    [
        ("probe.py", "seen.json", "--lr", "0.1"),
        ("inner/probe.py", "seen.json"),
        ("-m", "inner.probe", "seen.json", "a b"),
        ("sh", "-c", "python3 -u probe.py seen.json 'a b' --x=1"),
    ],
    ids=["script", "script in a folder", "module", "shell words"],
)
def test_a_program_sees_the_same_warm_and_cold(bench: Bench, command: tuple[str, ...]) -> None:
    warm, cold = probe(bench, *command)
    assert len(bench.fork_servers) > 0
    if command[0] == "sh":  # some shells stay between the keeper and the program
        for seen in (warm, cold):
            for name in ("death signal", "leads its group", "leads its session"):
                del seen["same"]["process"][name]
    assert_same(warm, cold)


def test_a_program_whose_fork_server_has_no_torch_sees_the_same(bench: Bench) -> None:
    hidden = f"exec(compile(bytes.fromhex({_PROBE.encode().hex()!r}), __file__, 'exec'))"
    before = bench.kinds
    warm, cold = probe(bench, "probe.py", "seen.json", text=hidden, mention="")
    assert bench.kinds == {*before, False}
    assert_same(warm, cold)


def assert_same(warm: dict[str, Any], cold: dict[str, Any]) -> None:
    for part, values in cold["same"].items():
        assert warm["same"][part] == values, part
    assert warm["log"] == cold["log"]
    assert warm["drawn"].keys() == cold["drawn"].keys()
    assert all(warm["drawn"][name] != value for name, value in cold["drawn"].items())
    assert cold["depth"] - warm["depth"] <= 2  # the one frame below, and what C needs for it
