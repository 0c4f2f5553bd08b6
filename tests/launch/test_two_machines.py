"""Two network namespaces stand in for two machines: each sees the other through a cable only."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

pytestmark = [pytest.mark.multiprocess, pytest.mark.slow]

DEADLINE_SECONDS = 90
PORT = 29500


@dataclass(frozen=True)
class Machine:
    """A network namespace with one address."""

    namespace: str
    device: str
    address: str

    def command(self, *command: str) -> list[str]:
        return ["ip", "netns", "exec", self.namespace, *command]


def _ip(*command: str) -> None:
    done = subprocess.run(["ip", *command], capture_output=True, text=True, timeout=20)
    if done.returncode != 0:
        raise OSError(f"ip {' '.join(command)}: {done.stderr.strip()}")


@pytest.fixture
def machines() -> Iterator[list[Machine]]:
    if shutil.which("ip") is None:
        pytest.skip("the command `ip` is missing")
    tag = secrets.token_hex(3)
    pair = [Machine(f"det-{tag}-{n}", f"v{tag}{n}", f"10.199.0.{n + 1}") for n in range(2)]
    with contextlib.ExitStack() as stack:
        try:
            for machine in pair:
                _ip("netns", "add", machine.namespace)
                stack.callback(_ip, "netns", "delete", machine.namespace)
            first, second = pair
            _ip("link", "add", first.device, "type", "veth", "peer", "name", second.device)
            for machine in pair:
                inside = ("-n", machine.namespace)
                _ip("link", "set", machine.device, "netns", machine.namespace)
                _ip(*inside, "address", "add", f"{machine.address}/24", "dev", machine.device)
                for device in (machine.device, "lo"):
                    _ip(*inside, "link", "set", device, "up")
        except OSError as error:
            pytest.skip(f"network namespaces are not permitted here: {error}")
        yield pair


_SCRIPT = """
from determined import pytorch
from tests.support.ranked import NetTrial
with pytorch.init(seed=1, hparams={"global_batch_size": 8}) as context:
    trial = NetTrial(context)
    pytorch.Trainer(trial, context).fit(
        max_length=pytorch.Batch(4), checkpoint_policy="none", validation_period=pytorch.Batch(2)
    )
    ranks = context.distributed
    print("trained", ranks.rank, ranks.size, ranks.local_size, ranks.cross_rank, trial.digests[-1])
"""


def test_ranks_on_two_machines_train_together(machines: list[Machine], tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(_SCRIPT)
    jobs = []
    for machine in machines:
        options = ["--nnodes=2", "--nproc_per_node=1", "--rdzv_backend=c10d", "--rdzv_id=job"]
        options += [f"--rdzv_endpoint={machines[0].address}:{PORT}"]
        options += [f"--local_addr={machine.address}"]
        # torchrun would tell by the host name, which the two have in common.
        options += [f"--rdzv_conf=is_host={int(machine is machines[0])}"]
        torchrun = [sys.executable, "-m", "torch.distributed.run", *options, str(script)]
        jobs.append(
            subprocess.Popen(
                machine.command(*torchrun),
                cwd=tmp_path,
                env={
                    **os.environ,
                    "DET_PROGRESS": "off",
                    "DET_COMM_SECRET": "a secret of this job",
                    "GLOO_SOCKET_IFNAME": machine.device,
                    "OMP_NUM_THREADS": "1",
                    "PYTHONPATH": str(Path(__file__).parents[2]),
                },
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
    found = []
    try:
        for job in jobs:
            stdout, stderr = job.communicate(timeout=DEADLINE_SECONDS)
            assert job.returncode == 0, stderr
            found += [line.split()[1:] for line in stdout.splitlines() if "trained" in line]
    finally:
        for job in jobs:
            job.kill()
            job.communicate()
    found.sort()
    assert [line[:4] for line in found] == [["0", "2", "1", "0"], ["1", "2", "1", "1"]]
    assert found[0][4] == found[1][4]


def test_gloo_listens_where_the_other_machine_is_seen(machines: list[Machine]) -> None:
    program = "from determined.launch.torch_distributed import _interface_to; import sys\n"
    program += "print(*map(_interface_to, sys.argv[1:]))"
    for machine in machines:
        hosts = [*(peer.address for peer in machines), "127.0.0.1", "10.198.0.1"]
        done = subprocess.run(
            machine.command(sys.executable, "-c", program, *hosts),
            capture_output=True,
            text=True,
            check=True,
        )
        # Its own address is found, too; loopback would lead nowhere, and so does no route.
        assert done.stdout.split() == [machine.device, machine.device, "None", "None"]
