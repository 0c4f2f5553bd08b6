"""PreemptContext: signals and requests become one answer that all ranks share."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from determined.core import (
    DistributedContext,
    DummyDistributedContext,
    DummyPreemptContext,
    PreemptContext,
    PreemptMode,
)
from determined.core.backends.backend import LocalBackend
from tests.support.workers import run_threads, run_workers


class CountingBackend(LocalBackend):
    """Counts acknowledgements."""

    def __init__(self) -> None:
        super().__init__()
        self.acknowledged = 0

    def acknowledge_preemption(self) -> None:
        self.acknowledged += 1


@pytest.fixture
def backend() -> CountingBackend:
    return CountingBackend()


@pytest.fixture
def preempt(backend: CountingBackend) -> Iterator[PreemptContext]:
    with PreemptContext(backend, DummyDistributedContext()) as context:
        yield context


def test_nothing_is_asked_for_at_first(preempt: PreemptContext) -> None:
    assert not preempt.should_preempt()
    assert not preempt.preempt_requested_locally()
    assert preempt.signal_received is None


def test_a_request_is_acknowledged_once_and_stays(
    preempt: PreemptContext, backend: CountingBackend
) -> None:
    backend.request_preemption()
    assert preempt.should_preempt()
    assert preempt.should_preempt()
    assert backend.acknowledged == 1
    assert preempt.signal_received is None


def test_acknowledging_can_be_left_to_the_user(
    preempt: PreemptContext, backend: CountingBackend
) -> None:
    backend.request_preemption()
    assert preempt.should_preempt(auto_ack=False)
    assert backend.acknowledged == 0
    preempt.acknowledge_preemption_signal()
    assert backend.acknowledged == 1


def test_life_cycle_is_checked() -> None:
    context = DummyPreemptContext()
    with pytest.raises(RuntimeError, match=r"cannot call should_preempt.* before start"):
        context.should_preempt()
    context.start()
    with pytest.raises(RuntimeError, match="twice"):
        context.start()


def test_modes_may_be_given_by_value() -> None:
    with DummyPreemptContext(preempt_mode="CHIEF_ONLY") as context:  # type: ignore[arg-type]  # published form
        assert not context.should_preempt()


def test_one_rank_s_request_stops_all_in_step() -> None:
    def ask(distributed: DistributedContext) -> list[Any]:
        backend = CountingBackend()
        with PreemptContext(backend, distributed) as context:
            before = context.should_preempt()
            if distributed.rank == 1:
                backend.request_preemption()
            return [before, context.should_preempt(), backend.acknowledged]

    assert run_threads((1, 3), ask) == [[False, True, 1], [False, True, 0], [False, True, 0]]


def test_only_the_chief_may_ask_in_chief_only_mode() -> None:
    def ask(distributed: DistributedContext) -> str:
        with DummyPreemptContext(distributed, PreemptMode.ChiefOnly) as context:
            try:
                return str(context.should_preempt())
            except RuntimeError as error:
                return str(error)

    chief, worker = run_threads((1, 2), ask)
    assert chief == "False"
    assert "should_preempt() was called from non-chief rank 1" in worker


def test_ranks_may_ask_alone_in_workers_ask_master_mode() -> None:
    def ask(distributed: DistributedContext) -> int:
        backend = CountingBackend()
        if distributed.rank == 1:
            backend.request_preemption()
        with PreemptContext(backend, distributed, PreemptMode.WorkersAskMaster) as context:
            for _ in range(distributed.rank):  # different numbers of calls
                assert context.should_preempt()
        return backend.acknowledged

    assert run_threads((1, 2), ask) == [0, 1]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_signals_request_a_stop_and_say_so(
    preempt: PreemptContext, number: signal.Signals, capfd: pytest.CaptureFixture[str]
) -> None:
    with preempt.catch_signals():
        os.kill(os.getpid(), number)
        assert preempt.preempt_requested_locally()
        assert preempt.should_preempt()
    assert preempt.signal_received == number
    message = capfd.readouterr().err
    assert number.name in message
    assert "checkpoint" in message
    assert "Ctrl-C again" in message


def test_a_second_interrupt_stops_at_once(preempt: PreemptContext) -> None:
    before = signal.getsignal(signal.SIGINT)
    with preempt.catch_signals():
        signal.raise_signal(signal.SIGINT)
        assert preempt.should_preempt()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        assert signal.getsignal(signal.SIGINT) is before


def test_an_interrupt_after_a_termination_does_not_count_as_the_second(
    preempt: PreemptContext,
) -> None:
    with preempt.catch_signals():
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGINT)
    assert preempt.signal_received == signal.SIGTERM


def test_a_launcher_s_echo_of_ctrl_c_is_no_second_one(
    preempt: PreemptContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "x")
    with preempt.catch_signals():
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
    assert preempt.signal_received == signal.SIGINT


def test_handlers_are_those_of_before_afterwards(preempt: PreemptContext) -> None:
    def mine(number: int, frame: object) -> None: ...

    signal.signal(signal.SIGTERM, mine)
    with preempt.catch_signals(), preempt.catch_signals():
        assert signal.getsignal(signal.SIGTERM) is not mine
    assert signal.getsignal(signal.SIGTERM) is mine


def test_asking_catches_signals_until_close(preempt: PreemptContext) -> None:
    before = signal.getsignal(signal.SIGTERM)
    assert not preempt.should_preempt()
    os.kill(os.getpid(), signal.SIGTERM)
    assert preempt.should_preempt()
    preempt.close()
    assert signal.getsignal(signal.SIGTERM) is before


def test_signals_that_the_process_ignores_stay_ignored(preempt: PreemptContext) -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
    with preempt.catch_signals():
        os.kill(os.getpid(), signal.SIGHUP)
        assert not preempt.should_preempt()


def test_other_threads_leave_handlers_alone(preempt: PreemptContext) -> None:
    before = signal.getsignal(signal.SIGTERM)
    seen: list[Any] = []

    def work() -> None:
        with preempt.catch_signals():
            seen.append(signal.getsignal(signal.SIGTERM))
            seen.append(preempt.should_preempt())

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(timeout=30)
    assert seen == [before, False]


_CHILD = """
import os, signal, sys, time
from determined.core import DummyPreemptContext
with DummyPreemptContext() as context, context.catch_signals():
    pid = os.fork()
    if pid == 0:
        os.kill(os.getpid(), signal.SIGINT)   # the parent still needs this child
        os.kill(os.getpid(), signal.SIGTERM)  # the parent ends it
        os._exit(0)
    status = os.waitpid(pid, 0)[1]
    print(os.WTERMSIG(status), context.signal_received)
"""


def test_forked_children_can_be_ended_and_survive_ctrl_c() -> None:
    answer = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", _CHILD],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert answer.stdout.split() == [str(int(signal.SIGTERM)), "None"]
    assert answer.stderr == ""


def _stop_when_rank_1_is_signalled() -> list[Any]:
    with (
        DistributedContext.from_torch_distributed() as distributed,
        DummyPreemptContext(distributed) as context,
    ):
        assert not context.should_preempt()
        if distributed.rank == 1:
            os.kill(os.getpid(), signal.SIGTERM)
        return [context.should_preempt(), context.signal_received]


@pytest.mark.multiprocess
def test_a_signal_to_one_process_stops_all() -> None:
    results = run_workers(2, _stop_when_rank_1_is_signalled, process_group=False)
    assert results == [[True, signal.SIGTERM], [True, signal.SIGTERM]]
