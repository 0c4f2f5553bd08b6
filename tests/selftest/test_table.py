"""What is checked where, and how results are shown."""

from __future__ import annotations

from determined.selftest._plan import CHECKS, Planned, plan
from determined.selftest._result import FAILS, HOLDS, NOT_RUN, Result
from determined.selftest._table import report, summary, table

_RESULTS = [
    Result("resume", "cuda:0", HOLDS, "12 batches equal", 11.6),
    Result("ddp", "cuda:0", NOT_RUN, "nccl needs a device for each rank, and there is one", 1.0),
    Result("amp", "cuda:0", FAILS, "in float16 the loss went from 1 to nan", 2.0),
]


def test_resume_is_checked_on_each_device_and_the_rest_on_the_first() -> None:
    planned = plan(["cuda:0", "cuda:1"])
    assert [check.check for check in planned if check.device == "cuda:0"] == list(CHECKS)
    assert [check.check for check in planned if check.device == "cuda:1"] == ["resume"]
    assert plan(["cpu"], ["amp", "waits"]) == [Planned("amp", "cpu", 0), Planned("waits", "cpu", 1)]


def test_a_table_has_what_is_promised_and_what_was_found() -> None:
    assert table(_RESULTS[:1]) == (
        "resume    cuda:0  holds: a run that was stopped and continued in a new process ends with "
        "the same bits\n"
        "                  12 batches equal (12 s)"
    )
    long = Result("amp", "cpu", HOLDS, "word " * 40, 1)
    assert max(map(len, table([long]).splitlines()[1:])) <= 100


def test_the_summary_names_what_does_not_hold() -> None:
    assert summary(_RESULTS) == "1 of 3 hold, 1 FAIL (amp on cuda:0), 1 were not run."
    assert summary(_RESULTS[:1]) == "1 of 1 hold."


def test_the_block_for_a_report_is_one_line_per_fact() -> None:
    assert report({"torch": "2.13"}, _RESULTS[2:]).splitlines() == [
        "```text",
        "determined selftest",
        "torch: 2.13",
        "",
        "FAILS | amp | cuda:0 | 2.0 s | in float16 the loss went from 1 to nan",
        "```",
    ]
