from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from determined.launch.torch_distributed import (
    Stop,
    create_launch_cmd,
    create_log_redirect_cmd,
    describe,
    find_first_failure,
    parse_args,
)
from determined.launch.wrap_rank import ExitRecord

DEADLINE_SECONDS = 60


class TestParseArgs:
    @pytest.mark.parametrize(
        ("line", "overrides", "script"),
        [
            ("python3 x.py 1", "", "python3 x.py 1"),
            ("-- x.sh -- y", "", "x.sh -- y"),
            ("--max_restarts 2 -- x.sh y", "--max_restarts 2", "x.sh y"),
            ("x.sh --trial y", "", "x.sh --trial y"),
            ("-- x.sh --help", "", "x.sh --help"),
        ],
    )
    def test_the_first_dashes_end_torchruns_part(
        self, line: str, overrides: str, script: str
    ) -> None:
        assert parse_args(line.split()) == (overrides.split(), script.split())

    def test_a_python_file_needs_no_interpreter(self) -> None:
        assert parse_args(["--", "x.py", "-v"]) == ([], [sys.executable, "x.py", "-v"])

    @pytest.mark.parametrize("line", ["--trial m:T", "-- --trial m:T"])
    def test_a_trial_class_runs_through_the_harness(self, line: str) -> None:
        harness = [sys.executable, "-m", "determined.exec.harness", "m:T"]
        assert parse_args(line.split()) == ([], harness)

    @pytest.mark.parametrize(
        ("line", "code", "message"),
        [
            ("--trial m:T more", 1, "extra arguments"),
            ("", 1, "empty script"),
            ("--max_restarts 2 --", 1, "empty script"),
            ("--no-such-option x.sh", 2, "--no-such-option"),
        ],
    )
    def test_a_wrong_line_is_explained(
        self, line: str, code: int, message: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        with pytest.raises(SystemExit) as caught:
            parse_args(line.split())
        assert caught.value.code == code
        stderr = capsys.readouterr().err
        assert "usage" in stderr
        assert message in stderr


class TestCommand:
    def test_one_machine_meets_where_others_cannot_connect(self) -> None:
        command = create_launch_cmd(1, 4, 0, "ignored", ["--max_restarts", "2"])
        assert command[:3] == [sys.executable, "-m", "determined.launch.torchrun"]
        assert _option(command, "--nproc_per_node") == "4"
        assert _option(command, "--rdzv_backend") == "loopback"
        assert _option(command, "--rdzv_endpoint") == "localhost:0"
        assert command[-3:] == ["--module", "--max_restarts", "2"]

    def test_several_machines_meet_at_the_chiefs(self, monkeypatch: pytest.MonkeyPatch) -> None:
        command = create_launch_cmd(3, 2, 1, "10.0.0.1", [])
        assert _option(command, "--nnodes") == "3"
        assert _option(command, "--node_rank") == "1"
        assert _option(command, "--master_addr") == "10.0.0.1"
        assert _option(command, "--master_port") == "29400"
        monkeypatch.setenv("C10D_PORT", "1234")
        assert _option(create_launch_cmd(3, 2, 1, "a", []), "--master_port") == "1234"

    @pytest.mark.parametrize(
        "overrides",
        [
            ["--master-port", "1"],
            ["--rdzv-endpoint=host:1"],
            ["--standalone"],
            ["--nnodes", "2", "--rdzv_id", "x"],
        ],
    )
    def test_a_meeting_point_of_the_users_is_left_alone(self, overrides: list[str]) -> None:
        command = create_launch_cmd(1, 1, 0, "localhost", overrides)
        assert "--rdzv_backend" not in command
        assert "--master_addr" not in command

    def test_output_goes_through_wrap_rank(self) -> None:
        assert create_log_redirect_cmd() == ["determined.launch.wrap_rank", "RANK", "--"]


_PEER_FAILURE = "determined.core.ranks.group.PeerFailedError: rank 1 failed: ValueError: bad"


class TestFirstFailure:
    def test_it_is_the_earliest(self) -> None:
        records = [_record(0, 2.0), _record(1, 1.0), _record(2, 3.0)]
        assert find_first_failure(records) is records[1]

    def test_a_rank_told_to_stop_comes_second(self) -> None:
        records = [_record(0, 1.0, exit_code=143, was_signalled=True), _record(1, 2.0)]
        assert find_first_failure(records) is records[1]

    def test_a_rank_ended_by_a_signal_of_others_comes_first(self) -> None:
        records = [
            _record(0, 2.0, exit_code=143, was_signalled=True),
            _record(1, 1.0, exit_code=143),
        ]
        assert find_first_failure(records) is records[1]
        records = [_record(0, 2.0, lines=[_PEER_FAILURE]), _record(1, 1.0, exit_code=143)]
        assert find_first_failure(records) is records[1]

    def test_a_rank_that_left_before_the_others_noticed_comes_first(self) -> None:
        left, echo = _record(1, 1.0, exit_code=0), _record(0, 2.0, lines=[_PEER_FAILURE])
        assert find_first_failure([echo, left]) is left
        assert "=== rank 1 left first, with exit code 0" in describe(left, [echo, left])
        failed = _record(0, 2.0)
        assert find_first_failure([failed, left]) is failed

    def test_a_stop_of_the_launcher_is_no_failure_of_a_rank(self) -> None:
        records = [_record(r, 2.0 + r, exit_code=143, was_signalled=True) for r in (1, 0)]
        stop = Stop(signal.SIGTERM, 1.0)
        assert describe(records[0], records, stop) == "\n=== stopped by SIGTERM\n"
        failed = _record(0, 2.0, was_signalled=True, lines=["ValueError: bad"])
        assert "rank 0 failed first, with exit code 1, after SIGTERM" in describe(
            failed, [failed], stop
        )

    @pytest.mark.parametrize("tag", ["", "[rank0]: "])
    def test_a_rank_that_quotes_another_comes_second(self, tag: str) -> None:
        echo = f"{tag}{_PEER_FAILURE}"
        records = [_record(0, 1.0, lines=[echo, ""]), _record(1, 2.0, lines=["ValueError: bad"])]
        assert find_first_failure(records) is records[1]

    def test_only_the_last_attempt_counts(self) -> None:
        records = [_record(0, 1.0), _record(1, 2.0, attempt=1)]
        assert find_first_failure(records) is records[1]

    def test_there_may_be_none(self) -> None:
        assert find_first_failure([]) is None


@pytest.mark.multiprocess
@pytest.mark.slow
class TestLaunch:
    def test_ranks_meet_and_their_output_is_tagged(self, tmp_path: Path) -> None:
        done = _launch(
            tmp_path,
            "import os\n"
            "from determined.core._distributed import DistributedContext\n"
            "with DistributedContext.from_torch_distributed() as c:\n"
            "    print(c.allgather(c.rank), os.environ['USE_TORCH_DISTRIBUTED'])\n"
            "    print('secret', len(set(c.allgather(os.environ['DET_COMM_SECRET']))))\n"
            "    print('chief', os.environ['DET_CHIEF_IP'])\n",
        )
        assert done.returncode == 0, done.stderr
        for rank in range(2):
            assert f"[rank={rank}] [0, 1] True\n" in done.stdout
            assert f"[rank={rank}] secret 1\n" in done.stdout
            assert f"[rank={rank}] chief 127.0.0.1\n" in done.stdout

    def test_without_options_one_cpu_process_runs(self, tmp_path: Path) -> None:
        done = _launch(tmp_path, "import os; print(os.environ['WORLD_SIZE'])", overrides=[])
        assert done.stdout == "[rank=0] 1\n"

    def test_the_first_failure_is_shown_last_and_gives_the_exit_code(self, tmp_path: Path) -> None:
        done = _launch(
            tmp_path,
            "import os, sys, time\n"
            "if os.environ['RANK'] == '0': time.sleep(60)\n"
            "try:\n"
            "    raise ValueError('bad batch')\n"
            "except ValueError:\n"
            "    sys.excepthook(*sys.exc_info())\n"
            "    sys.exit(17)\n",
        )
        assert done.returncode == 17
        summary = done.stderr[done.stderr.rindex("=== rank") - 1 :]
        assert "=== rank 1 failed first, with exit code 17\n" in done.stderr
        assert "ValueError: bad batch\n" in summary
        assert "then ended: rank 0" in done.stderr

    def test_a_killed_rank_ends_the_others(self, tmp_path: Path) -> None:
        done = _launch(
            tmp_path,
            "import os\n"
            "from determined.core._distributed import DistributedContext\n"
            "c = DistributedContext.from_torch_distributed()\n"
            "if c.rank == 0: os.kill(os.getpid(), 9)\n"
            "c.allgather(1)\n",
        )
        assert done.returncode == 137
        assert "rank 0 failed first, with exit code 137 (SIGKILL)" in done.stderr

    def test_restarted_ranks_meet_again(self, tmp_path: Path) -> None:
        done = _launch(
            tmp_path,
            "import os\n"
            "from determined.core._distributed import DistributedContext\n"
            "attempt = int(os.environ['TORCHELASTIC_RESTART_COUNT'])\n"
            "c = DistributedContext.from_torch_distributed()\n"
            "print('met', c.allgather(attempt), flush=True)\n"
            "if attempt < 2 and c.rank == attempt: os.kill(os.getpid(), 9)\n"
            "c.allgather(1)\n",
            overrides=["--nproc_per_node", "2", "--max_restarts", "2"],
        )
        assert done.returncode == 0, done.stderr
        for attempt in range(3):
            assert done.stdout.count(f"met [{attempt}, {attempt}]") == 2

    def test_no_port_is_open_to_other_machines(self, tmp_path: Path) -> None:
        done = _launch(tmp_path, _MEET_TWICE)
        assert done.returncode == 0, done.stderr
        ports = dict(re.findall(r"listens at (\S+) (\d+)", done.stdout))
        assert ports
        assert ports.keys() <= {"127.0.0.1"}, done.stdout
        assert re.search("gloo on lo0?\n", done.stdout)
        assert "met [0, 1] in a store of 0 keys" in done.stdout

    def test_sigterm_reaches_each_worker_once(self, tmp_path: Path) -> None:
        job = _start(tmp_path, _WAIT_FOR_SIGNALS)
        _await_lines(job, 2)
        job.send_signal(signal.SIGUSR1)
        _await_lines(job, 2)
        job.send_signal(signal.SIGTERM)
        stdout, stderr = job.communicate(timeout=DEADLINE_SECONDS)
        for rank in range(2):
            assert f"[rank={rank}] ended after SIGUSR1 SIGTERM\n" in stdout, stderr

    @pytest.mark.parametrize(
        ("ends", "lines"),
        [
            ("os.kill(os.getpid(), signal.SIGTERM)", "failed first, with exit code 143 (SIGTERM)"),
            ("os._exit(0)", "left first, with exit code 0"),
        ],
    )
    def test_the_rank_that_ended_is_named(self, tmp_path: Path, ends: str, lines: str) -> None:
        job = _start(tmp_path, _LEAVES.replace("ENDS", ends))
        _, stderr = job.communicate(timeout=DEADLINE_SECONDS)
        assert f"=== rank 1 {lines}" in stderr
        assert job.returncode != 0

    def test_a_stop_is_no_failure_and_reaches_a_suspended_rank(self, tmp_path: Path) -> None:
        job = _start(tmp_path, _SUSPENDED)
        _await_lines(job, 2)
        job.send_signal(signal.SIGTERM)
        stdout, stderr = job.communicate(timeout=DEADLINE_SECONDS)
        assert "[rank=1] stopping" in stdout  # else torchrun kills it, half a minute later
        assert stderr.endswith("\n=== stopped by SIGTERM\n"), stderr
        assert job.returncode == 143

    def test_nothing_is_left_when_the_launcher_is_killed(self, tmp_path: Path) -> None:
        job = _start(tmp_path, "import time; print('here', flush=True); time.sleep(100)")
        _await_lines(job, 2)
        family = psutil.Process(job.pid).children(recursive=True)
        assert len(family) >= 5  # torchrun, two wrappers, two workers
        job.kill()
        job.communicate(timeout=DEADLINE_SECONDS)
        _, alive = psutil.wait_procs(family, timeout=DEADLINE_SECONDS)
        assert alive == []

    def test_nothing_is_left_when_torchrun_is_killed(self, tmp_path: Path) -> None:
        job = _start(tmp_path, "import time; print('here', flush=True); time.sleep(100)")
        _await_lines(job, 2)
        family = psutil.Process(job.pid).children(recursive=True)
        family[0].kill()
        job.communicate(timeout=DEADLINE_SECONDS)
        assert job.returncode != 0
        _, alive = psutil.wait_procs(family[1:], timeout=DEADLINE_SECONDS)
        assert alive == []


# First as a script of its own, then as one of ours, which leaves nothing in torch's store.
_MEET_TWICE = """
import os, psutil, socket, torch, torch.distributed as dist
from determined import pytorch
def show():
    for process in [psutil.Process()] + psutil.Process().parents()[:3]:  # up to the launcher
        for c in process.net_connections("inet"):
            if c.status == "LISTEN":
                print("listens at", *c.laddr, flush=True)
                with socket.create_connection(c.laddr) as stranger:
                    stranger.sendall(os.urandom(64))
dist.init_process_group("gloo")
dist.all_reduce(torch.ones(1))
show()
own = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=False)
dist.barrier()
keys = own.num_keys()
dist.barrier()
dist.destroy_process_group()
with pytorch.init() as context:
    dist.all_reduce(torch.ones(1))
    show()
    dist.all_reduce(torch.ones(1000))
    print("gloo on", os.environ["GLOO_SOCKET_IFNAME"], flush=True)
    ranks = context.distributed.allgather(dist.get_rank())
    print("met", ranks, "in a store of", own.num_keys() - keys, "keys", flush=True)
"""

_WAIT_FOR_SIGNALS = """
import signal, sys, time
seen = []
def note(number, frame):
    seen.append(signal.Signals(number).name)
    print("got", seen[-1], flush=True)
for number in (signal.SIGUSR1, signal.SIGTERM):
    signal.signal(number, note)
print("here", flush=True)
while "SIGTERM" not in seen:
    time.sleep(0.01)
time.sleep(1)  # a second SIGTERM would come within this
print("ended after", *seen, flush=True)
"""


_LEAVES = """
import os, signal
from determined.core._distributed import DistributedContext
with DistributedContext.from_torch_distributed() as ranks:
    ranks.allgather(1)
    if ranks.rank == 1:
        ENDS
    ranks.allgather(2)
"""

_SUSPENDED = """
import os, signal, sys, time
def stop(number, frame):
    print("stopping", flush=True)
    sys.exit(143)
signal.signal(signal.SIGTERM, stop)
print("here", flush=True)
if os.environ["RANK"] == "1":
    os.kill(os.getpid(), signal.SIGSTOP)
time.sleep(100)
"""


def _option(command: list[str], name: str) -> str:
    return command[command.index(name) + 1]


def _record(
    rank: int,
    seconds: float,
    exit_code: int = 1,
    lines: list[str] | None = None,
    attempt: int = 0,
    was_signalled: bool = False,
) -> ExitRecord:
    return ExitRecord(rank, attempt, exit_code, seconds, lines or [], was_signalled)


def _start(
    tmp_path: Path, script: str, overrides: list[str] | None = None
) -> subprocess.Popen[str]:
    path = tmp_path / "script.py"
    path.write_text(script)
    overrides = ["--nproc_per_node", "2"] if overrides is None else overrides
    launcher = [sys.executable, "-m", "determined.launch.torch_distributed"]
    return subprocess.Popen(
        [*launcher, *overrides, "--", sys.executable, str(path)],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def _launch(
    tmp_path: Path, script: str, overrides: list[str] | None = None
) -> subprocess.CompletedProcess[str]:
    job = _start(tmp_path, script, overrides)
    stdout, stderr = job.communicate(timeout=DEADLINE_SECONDS)
    return subprocess.CompletedProcess(job.args, job.returncode, stdout, stderr)


def _await_lines(job: subprocess.Popen[str], count: int) -> None:
    assert job.stdout is not None
    for _ in range(count):
        assert job.stdout.readline() != ""
