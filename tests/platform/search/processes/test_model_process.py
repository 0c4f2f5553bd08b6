"""A model in a process of its own."""

from __future__ import annotations

import os
import signal

import pytest

from determined.platform.search.processes.model_process import ModelProcess, missing_packages
from determined.platform.search.sampling.model import ProposalRequest
from determined.platform.search.sampling.samplers import build_model
from determined.platform.search.space import Point, Space
from tests.platform.search.scripted import SPACE


@pytest.mark.parametrize("sampler", ["auto", "tpe"])
def test_a_model_in_a_process_answers_as_one_in_this_process(sampler: str) -> None:
    observed: list[tuple[int, Point, float, int]] = [
        (n, [-4 + 0.2 * n, n % 8 + 1], 0.1 * n, 4) for n in range(14)
    ]
    request = ProposalRequest(3, 14, observed, [(14, [-2.0, 3])])
    model = ModelProcess(sampler, SPACE)
    point = model.propose(request)
    assert point == build_model(sampler, Space(SPACE)).propose(request)
    assert model.pid is not None
    os.kill(model.pid, signal.SIGKILL)  # or it left: the next request starts another
    assert model.propose(request) == point
    model.close()


def test_what_a_sampler_needs_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert missing_packages("random") is None
    assert "needs optuna and cmaes" in (missing_packages("cmaes") or "")
    assert "pip install 'determined-pytorch[optuna]'" in (missing_packages("tpe") or "")
