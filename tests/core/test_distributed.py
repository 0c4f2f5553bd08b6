from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from determined.core._distributed import (
    DistributedContext,
    DummyDistributedContext,
    _run_on_rank_0_and_broadcast,
)
from determined.core.ranks.group import OutOfStepError
from determined.core.ranks.rendezvous import Rendezvous
from determined.errors import DistributedError
from tests.support.workers import collect_workers, free_port, run_threads, run_workers

ONE_RANK: dict[str, Any] = {
    "rank": 0,
    "size": 1,
    "local_rank": 0,
    "local_size": 1,
    "cross_rank": 0,
    "cross_size": 1,
}


def _everything(context: DistributedContext) -> dict[str, Any]:
    mine = {"rank": context.rank, "local_rank": context.local_rank}
    return {
        "gather": context.gather(mine),
        "allgather": context.allgather(mine),
        "broadcast": context.broadcast(mine),
        "gather_local": context.gather_local(mine),
        "allgather_local": context.allgather_local(mine),
        "broadcast_local": context.broadcast_local(mine),
    }


def _check_everything(results: list[dict[str, Any]], local_size: int) -> None:
    everybody = [{"rank": r, "local_rank": r % local_size} for r in range(len(results))]
    for rank, result in enumerate(results):
        first = rank // local_size * local_size
        neighbours = everybody[first : first + local_size]
        assert result == {
            "gather": everybody if rank == 0 else None,
            "allgather": everybody,
            "broadcast": everybody[0],
            "gather_local": neighbours if rank == first else None,
            "allgather_local": neighbours,
            "broadcast_local": neighbours[0],
        }


class TestOneRank:
    def test_without_numbers_it_is_the_only_rank(self) -> None:
        context = DistributedContext()
        assert [getattr(context, name) for name in ONE_RANK] == [0, 1, 0, 1, 0, 1]

    def test_collectives_return_at_once(self) -> None:
        context = DummyDistributedContext()
        thing = object()  # not even picklable for long, and still itself
        assert context.gather(thing) == context.allgather(thing) == [thing]
        assert context.gather_local(thing) == context.allgather_local(thing) == [thing]
        assert context.broadcast(thing) is context.broadcast_local(thing) is thing
        assert context.broadcast_local() is None
        with context.local_chief_first():
            pass
        context.close()
        context.close()

    def test_getters_agree_with_attributes(self) -> None:
        context = DistributedContext(**ONE_RANK)
        assert context.get_rank() == context.get_local_rank() == 0
        assert context.get_size() == context.get_num_agents() == 1


class TestArguments:
    @pytest.mark.parametrize("name", list(ONE_RANK))
    def test_numbers_come_together(self, name: str) -> None:
        with pytest.raises(ValueError, match=f"missing: {name}"):
            DistributedContext(**{k: v for k, v in ONE_RANK.items() if k != name})

    @pytest.mark.parametrize("name", ["rank", "local_rank", "cross_rank"])
    def test_a_rank_is_below_its_size(self, name: str) -> None:
        with pytest.raises(ValueError, match=f"`{name}`"):
            DistributedContext(**{**ONE_RANK, name: 1})

    def test_several_machines_need_the_chiefs_address(self) -> None:
        with pytest.raises(AssertionError, match="chief_ip"):
            DistributedContext(**{**ONE_RANK, "size": 2, "cross_size": 2})

    def test_a_timeout_is_a_positive_number(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("DET_COLLECTIVE_TIMEOUT", "soon")
        with pytest.raises(ValueError, match="DET_COLLECTIVE_TIMEOUT"):
            DistributedContext()

    @pytest.mark.parametrize(
        ("build", "names"),
        [
            (
                DistributedContext.from_torch_distributed,
                "RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE GROUP_RANK GROUP_WORLD_SIZE",
            ),
            (
                DistributedContext.from_deepspeed,
                "RANK WORLD_SIZE LOCAL_RANK LOCAL_SIZE CROSS_RANK CROSS_SIZE",
            ),
        ],
    )
    def test_every_variable_of_a_launcher_is_needed(
        self, build: Any, names: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for name in names.split():
            monkeypatch.setenv(name, "1" if name.endswith("SIZE") else "0")
        assert build().size == 1
        for name in names.split():
            with monkeypatch.context() as patch:
                patch.delenv(name)
                with pytest.raises(KeyError, match=name):
                    build()

    @pytest.mark.parametrize("variable", ["DET_CHIEF_IP", "MASTER_ADDR"])
    def test_the_chiefs_address_is_found_in_the_environment(
        self, variable: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delenv("MASTER_ADDR", raising=False)
        monkeypatch.setenv(variable, "localhost")

        def rank(index: int) -> None:
            hvd = SimpleNamespace(
                rank=lambda: index,
                size=lambda: 2,
                local_rank=lambda: 0,
                local_size=lambda: 1,
                cross_rank=lambda: index,
                cross_size=lambda: 2,
            )
            with DistributedContext.from_horovod(hvd) as context:
                assert context.allgather(index) == [0, 1]
                done.append(index)

        done: list[int] = []
        threads = [threading.Thread(target=rank, args=(index,)) for index in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert sorted(done) == [0, 1]


class TestThreadsAsRanks:
    @pytest.mark.parametrize("force_tcp", [False, True])
    @pytest.mark.parametrize("layout", [(1, 2), (2, 1), (3, 3), (4, 4)])
    def test_all_collectives(self, layout: tuple[int, int], force_tcp: bool) -> None:
        results = run_threads(layout, _everything, force_tcp=force_tcp)
        _check_everything(results, layout[1])

    def test_explicit_ports(self) -> None:
        port = free_port()
        results = run_threads((2, 2), _everything, pub_port=port, pull_port=port + 1)
        _check_everything(results, 2)

    @settings(max_examples=10, deadline=None)
    @given(
        program=st.lists(
            st.tuples(
                st.sampled_from(["gather", "allgather", "broadcast"]),
                st.sampled_from(["", "_local"]),
                st.one_of(st.integers(), st.binary(max_size=100_000), st.lists(st.text())),
            ),
            max_size=8,
        )
    )
    def test_any_sequence_of_collectives_stays_in_order(
        self, program: list[tuple[str, str, Any]]
    ) -> None:
        def run(context: DistributedContext) -> list[Any]:
            return [
                getattr(context, verb + scope)((context.rank, value))
                for verb, scope, value in program
            ]

        for rank, results in enumerate(run_threads((2, 2), run)):
            for (verb, scope, value), result in zip(program, results, strict=True):
                first = rank // 2 * 2 if scope else 0
                members = range(first, first + 2) if scope else range(4)
                if verb == "broadcast":
                    assert result == (first, value)
                elif verb == "gather" and rank != first:
                    assert result is None
                else:
                    assert result == [(member, value) for member in members]

    def test_a_second_job_in_the_same_threads_follows_the_first(self) -> None:
        port = free_port()
        for _ in range(5):
            assert run_threads((1, 2), lambda c: c.broadcast(c.rank), pub_port=port) == [0, 0]

    def test_the_machines_ranks_must_fit_together(self) -> None:
        def rank(index: int) -> None:
            with pytest.raises((ValueError, DistributedError), match="local ranks"):
                DistributedContext(**{**ONE_RANK, "rank": index, "size": 2, "local_size": 2})
            done.append(index)

        done: list[int] = []
        threads = [threading.Thread(target=rank, args=(index,)) for index in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert sorted(done) == [0, 1]


class TestLocalChiefFirst:
    def test_the_others_of_a_machine_come_after_it(self) -> None:
        order: list[int] = []

        def work(context: DistributedContext) -> None:
            with context.local_chief_first():
                order.append(context.rank)

        run_threads((2, 3), work)
        assert sorted(order) == list(range(6))
        assert order.index(0) < min(order.index(1), order.index(2))
        assert order.index(3) < min(order.index(4), order.index(5))

    def test_its_failure_reaches_the_others(self) -> None:
        def work(context: DistributedContext) -> str:
            try:
                with context.local_chief_first():
                    raise OSError("no such dataset")
            except (OSError, DistributedError) as error:
                return str(error)

        chief, other = run_threads((1, 2), work)
        assert chief == "no such dataset"
        assert "rank 0 failed: OSError: no such dataset" in other


class TestRunOnRank0:
    def test_the_result_is_on_every_rank(self) -> None:
        def work(context: DistributedContext) -> int:
            return _run_on_rank_0_and_broadcast(lambda: context.rank + 7, context)

        assert run_threads((1, 3), work) == [7, 7, 7]
        assert _run_on_rank_0_and_broadcast(lambda: "alone") == "alone"

    def test_nothing_is_not_a_result(self) -> None:
        with pytest.raises(AssertionError, match="must return"):
            _run_on_rank_0_and_broadcast(lambda: None)

    def test_its_failure_reaches_the_others(self) -> None:
        def fail() -> int:
            raise KeyError("gone")

        def work(context: DistributedContext) -> str:
            with pytest.raises((KeyError, DistributedError)) as caught:
                _run_on_rank_0_and_broadcast(fail, context)
            return str(caught.value)

        assert all("gone" in text for text in run_threads((1, 2), work))


class TestTrouble:
    def test_a_rank_that_is_missing_is_named_after_the_timeout(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("DET_COLLECTIVE_TIMEOUT", "0.5")

        def work(context: DistributedContext) -> str:
            if context.rank == 2:
                return str(_wait_for_failure(context))
            with pytest.raises(DistributedError) as caught:
                context.allgather(1)
            return str(caught.value)

        for text in run_threads((1, 3), work):
            assert "allgather" in text
            assert "after 0.5 s: rank 2 sent nothing" in text

    def test_an_absent_rank_is_named_at_the_start(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("DET_COLLECTIVE_TIMEOUT", "0.3")
        two = {**ONE_RANK, "size": 2, "local_size": 2}
        with pytest.raises(DistributedError, match=r"rank 1 did not connect within 0\.3 s"):
            DistributedContext(**two, pub_port=free_port())
        worker = {**two, "rank": 1, "local_rank": 1}
        with pytest.raises(DistributedError, match="did not find the chief"):
            DistributedContext(**worker, pub_port=free_port())

    def test_ranks_out_of_step_all_raise(self) -> None:
        def work(context: DistributedContext) -> str:
            collective = context.gather if context.rank == 1 else context.allgather
            with pytest.raises(RuntimeError) as caught:
                collective("x")
            assert isinstance(caught.value, OutOfStepError)
            assert caught.value.rank == 1
            return str(caught.value)

        for text in run_threads((1, 3), work):
            assert "rank 1 called gather as its collective 2" in text
            assert "rank 0 called allgather as its collective 2" in text

    def test_a_failing_rank_is_quoted_by_the_others(self) -> None:
        all_have_met = threading.Barrier(4)

        def work(context: DistributedContext) -> str:
            all_have_met.wait(30)
            if context.rank == 1:
                context.fail(ValueError("batch 17 is empty"))
                return ""
            with pytest.raises(DistributedError) as caught:
                context.allgather(1)
            return str(caught.value)

        for text in run_threads((2, 2), work)[2:]:
            assert text == "rank 1 failed: ValueError: batch 17 is empty"

    def test_a_complete_collective_succeeds_though_its_sender_failed_since(self) -> None:
        def work(context: DistributedContext) -> list[int]:
            result = context.allgather(context.rank)
            if context.rank == 0:
                context.fail(ValueError("too late to matter"))
            return result

        for _ in range(20):
            assert run_threads((1, 3), work) == [[0, 1, 2]] * 3

    def test_leaving_is_no_failure_but_ends_collectives(self) -> None:
        def work(context: DistributedContext) -> str:
            if context.rank == 1:
                context.close()
                with pytest.raises(DistributedError, match="closed"):
                    context.broadcast(1)
                return ""
            assert context.failure is None
            with pytest.raises(DistributedError) as caught:
                context.gather(1)
            assert context.failure is None
            return str(caught.value)

        assert "rank 1 has closed its distributed context" in run_threads((1, 2), work)[0]

    def test_a_failure_is_received_after_the_chief_left(self) -> None:
        left = threading.Event()

        def work(context: DistributedContext) -> list[int]:
            if context.rank == 0:
                context.broadcast(1)
                context.broadcast(2)
                context.close()
                left.set()
                return []
            assert left.wait(30)
            return [context.broadcast(None), context.broadcast(None)]

        assert run_threads((1, 2), work)[1] == [1, 2]

    def test_a_value_that_cannot_be_pickled_fails_alone_and_in_step(self) -> None:
        def work(context: DistributedContext) -> list[int]:
            if context.rank == 1:
                with pytest.raises(Exception, match=r"pickle|lambda"):
                    context.allgather(lambda: None)
            return context.allgather(context.rank)

        assert run_threads((1, 2), work) == [[0, 1], [0, 1]]

    def test_a_stranger_that_connects_is_ignored(self, tmp_path: Path) -> None:
        import socket

        chief = {**ONE_RANK, "size": 2, "local_size": 2}
        port = free_port()
        results: list[Any] = []

        def rank(index: int) -> None:
            numbers = {**chief, "rank": index, "local_rank": index}
            with DistributedContext(**numbers, pub_port=port) as context:
                results.append(context.allgather(index))

        first = threading.Thread(target=rank, args=(0,))
        first.start()
        ports = (port, 12376, *range(port + 1, port + 16))
        rendezvous = Rendezvous(1, 2, None, (port, port + 16, *ports[2:]), 30.0)
        while not (found := list(rendezvous._candidates(0.0))):
            time.sleep(0.01)
        host, real_port, _ = found[0]
        silent = socket.create_connection((host, real_port))
        with silent, socket.create_connection((host, real_port)) as rude:
            rude.sendall(b"cos\nsystem\n(S'touch exploded'\ntR." * 10)
            second = threading.Thread(target=rank, args=(1,))
            second.start()
            first.join(30)
            second.join(30)
        assert results == [[0, 1], [0, 1]]
        assert list(rendezvous._candidates(0.0)) == []  # address and secret are taken back


def _wait_for_failure(context: DistributedContext) -> DistributedError:
    while (failure := context.failure) is None:
        time.sleep(0.01)
    return failure


def _collectives_of_a_worker() -> dict[str, Any]:
    with DistributedContext.from_torch_distributed() as context:
        return _everything(context)


def _large_objects(length: int) -> list[int]:
    with DistributedContext.from_torch_distributed() as context:
        whole = context.broadcast(bytes(length) if context.rank == 0 else None)
        parts = context.allgather(bytes(length // 10))
        return [len(whole), *map(len, parts)]


def _killed(victim: int) -> str:
    context = DistributedContext.from_torch_distributed()
    context.allgather("all are here")
    if context.rank == victim:
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        context.allgather("one is gone")
    except DistributedError as error:
        return str(error)
    return "no error"


def _killed_while_the_chief_computes() -> str:
    context = DistributedContext.from_torch_distributed()
    if context.rank == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    if context.rank == 0:
        return str(_wait_for_failure(context))
    with pytest.raises(DistributedError) as caught:
        context.broadcast(None)
    return str(caught.value)


def _killed_with_a_forked_child_left(pid_file: Path) -> str:
    context = DistributedContext.from_torch_distributed()
    if context.rank == 1:
        child = os.fork()
        if child == 0:
            time.sleep(60)
            os._exit(0)
        pid_file.write_text(str(child))
        os.kill(os.getpid(), signal.SIGKILL)
    with pytest.raises(DistributedError) as caught:
        context.allgather(None)
    return str(caught.value)


def _used_in_a_forked_child() -> str:
    with DistributedContext.from_torch_distributed() as context:
        context.allgather(1)
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                context.allgather(2)
            except DistributedError as error:
                os.write(writer, str(error).encode())
            os._exit(0)
        os.close(writer)
        os.waitpid(child, 0)
        with os.fdopen(reader) as file:
            text = file.read()
        assert context.allgather(context.rank) == [0, 1]  # the parent's is unharmed
        return text


@pytest.mark.multiprocess
class TestProcesses:
    @pytest.mark.parametrize("size", [2, 4])
    def test_all_collectives(self, size: int) -> None:
        _check_everything(run_workers(size, _collectives_of_a_worker), size)

    def test_without_a_process_group(self) -> None:
        _check_everything(run_workers(2, _collectives_of_a_worker, process_group=False), 2)

    def test_large_objects(self) -> None:
        length = 100 << 20
        results = run_workers(2, _large_objects, length, process_group=False)
        assert results == [[length, length // 10, length // 10]] * 2

    @pytest.mark.parametrize("victim", [0, 1])
    def test_a_killed_rank_is_named_by_the_others(self, victim: int) -> None:
        outcomes = collect_workers(3, _killed, victim, process_group=False, deadline_seconds=30)
        assert outcomes[victim].exit_code == -signal.SIGKILL
        for outcome in outcomes:
            if outcome.rank != victim:
                assert f"rank {victim} died" in outcome.value

    def test_a_death_is_known_while_the_chief_computes(self) -> None:
        outcomes = collect_workers(
            3, _killed_while_the_chief_computes, process_group=False, deadline_seconds=30
        )
        assert ["rank 2 died" in str(outcome.value) for outcome in outcomes] == [True, True, False]

    def test_a_forked_child_does_not_hide_the_death_of_its_parent(self, tmp_path: Path) -> None:
        pid_file = tmp_path / "pid"
        try:
            outcomes = collect_workers(
                2,
                _killed_with_a_forked_child_left,
                pid_file,
                process_group=False,
                deadline_seconds=30,
            )
        finally:
            os.kill(int(pid_file.read_text()), signal.SIGKILL)
        assert "rank 1 died" in outcomes[0].value

    def test_a_forked_child_cannot_use_it(self) -> None:
        for text in run_workers(2, _used_in_a_forked_child, process_group=False):
            assert "forked child" in text

    def test_an_uncaught_exception_is_quoted_by_the_others(self) -> None:
        script = (
            "import os\n"
            "from determined.core._distributed import DistributedContext\n"
            "context = DistributedContext.from_torch_distributed()\n"
            "if context.rank == 1: raise ArithmeticError('loss is not finite')\n"
            "context.gather(None)\n"
        )
        chief, other = _run_scripts(script, MASTER_PORT=str(free_port()))
        assert "ArithmeticError" in other
        assert "PeerFailedError: rank 1 failed: ArithmeticError: loss is not finite" in chief

    def test_two_jobs_on_default_ports_do_not_meet(self) -> None:
        script = (
            "import sys, threading\n"
            "from determined.core._distributed import DistributedContext\n"
            "def rank(n):\n"
            "    c = DistributedContext(rank=n, size=6, local_rank=n % 3, local_size=3,\n"
            "        cross_rank=n // 3, cross_size=2, chief_ip='localhost')\n"
            "    with c:\n"
            "        seen.append(c.allgather(sys.argv[1]))\n"
            "seen = []\n"
            "threads = [threading.Thread(target=rank, args=(n,)) for n in range(6)]\n"
            "for t in threads: t.start()\n"
            "for t in threads: t.join()\n"
            "assert seen == [[sys.argv[1]] * 6] * 6, seen\n"
        )
        jobs = [_script(script, name) for name in ("first", "second", "third")]
        outputs = [job.communicate(timeout=60)[0] for job in jobs]
        assert [job.returncode for job in jobs] == [0, 0, 0], outputs

    def test_two_jobs_of_one_machine_meet_through_fixed_ports_by_their_secret(self) -> None:
        import socket

        host = socket.gethostname()
        try:
            socket.getaddrinfo(host, None)
        except OSError:
            pytest.skip(f"this machine cannot resolve its own name {host!r}")
        script = (
            "import os\n"
            "from determined.core._distributed import DistributedContext\n"
            "with DistributedContext.from_torch_distributed() as c:\n"
            "    seen = c.allgather(os.environ['DET_COMM_SECRET'])\n"
            "assert len(set(seen)) == 1, seen\n"
        )
        jobs = [
            _script(
                script,
                RANK=str(rank),
                WORLD_SIZE="2",
                LOCAL_RANK="0",
                LOCAL_WORLD_SIZE="1",
                GROUP_RANK=str(rank),
                GROUP_WORLD_SIZE="2",
                DET_CHIEF_IP=host,
                DET_COMM_SECRET=secret,
            )
            for rank in (1, 0)
            for secret in ("red", "blue")
        ]
        outputs = [job.communicate(timeout=60)[0] for job in jobs]
        assert [job.returncode for job in jobs] == [0] * 4, outputs


def test_the_secrets_directory_must_be_private(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (tmp_path / f"determined-{os.getuid()}").mkdir(mode=0o777)
    (tmp_path / f"determined-{os.getuid()}").chmod(0o777)
    with pytest.raises(DistributedError, match="mode 0700"):
        DistributedContext(**{**ONE_RANK, "size": 2, "local_size": 2})


def test_it_works_without_torch() -> None:
    script = (
        "import sys, determined.core._distributed as d\n"
        "d.DummyDistributedContext().allgather(1)\n"
        "assert not {'torch', 'numpy'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)


def _script(text: str, *args: str, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", text, *args],
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def _run_scripts(text: str, **environment: str) -> list[str]:
    """Run a script as two ranks of one machine and return what each printed."""
    jobs = [
        _script(
            text,
            RANK=str(rank),
            WORLD_SIZE="2",
            LOCAL_RANK=str(rank),
            LOCAL_WORLD_SIZE="2",
            GROUP_RANK="0",
            GROUP_WORLD_SIZE="1",
            **environment,
        )
        for rank in range(2)
    ]
    return [job.communicate(timeout=60)[0] for job in jobs]
