"""The process in which a model runs: JSON lines in, JSON lines out.

python -m determined.platform.search.processes.model_child      started by `model_process`
"""

from __future__ import annotations

import json
import os
import select
import sys
from typing import Any, BinaryIO

from determined.platform.search.processes.child import end_with_parent
from determined.platform.search.sampling.model import ProposalRequest
from determined.platform.search.sampling.samplers import build_model
from determined.platform.search.space import Space

_IDLE_SECONDS = 60.0  # a model does not hold its memory for long


def _serve(lines: BinaryIO, answers: int) -> None:
    opening = json.loads(lines.readline())
    os.write(answers, b"{}\n")  # so that one line at a time is on its way, and `select` sees it
    model = build_model(opening["sampler"], Space(opening["hyperparameters"]))
    while True:
        ready, _, _ = select.select([lines], [], [], _IDLE_SECONDS)
        line = lines.readline() if ready else b""
        if not line:
            return
        try:
            answer: dict[str, Any] = {"point": model.propose(ProposalRequest(**json.loads(line)))}
        except Exception as error:
            answer = {"error": repr(error)}
        os.write(answers, json.dumps(answer).encode() + b"\n")


def main() -> None:
    # The output of libraries must not mix with our lines: it goes to stderr.
    end_with_parent()
    answers = os.dup(1)
    os.dup2(2, 1)
    _serve(sys.stdin.buffer, answers)


if __name__ == "__main__":
    main()
