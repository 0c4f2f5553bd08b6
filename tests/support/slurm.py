"""A private Slurm on this machine: its own key, ports and folders, ended process by process.

A controller that is killed has forgotten the jobs of the last seconds (`wait_until_saved`).
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import psutil
import pytest

from determined.platform.machines.slots import free_ports
from determined.platform.machines.slurm import Job, load_table
from determined.store import Run
from tests.support.cluster_lab import ClusterLab
from tests.support.lab import Lab

_PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "squeue", "scancel", "sinfo", "scontrol")
_NODES = ("n1", "n2", "n3")
_START_SECONDS = 60.0
_CONF = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.sock
StateSaveLocation={folder}/ctl
SlurmdSpoolDir={folder}/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SlurmctldPort={port}
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
SchedulerParameters=sched_interval=2,bf_interval=2,batch_sched_delay=0,sched_min_interval=0
PreemptType=preempt/partition_prio
PreemptMode=CANCEL
SlurmdTimeout=20
KillWait=5
MinJobAge=60
MessageTimeout=3
ReturnToService=2
NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port={port1} CPUs=2
NodeName=n2 NodeHostname={host} NodeAddr=127.0.0.1 Port={port2} CPUs=2
NodeName=n3 NodeHostname={host} NodeAddr=127.0.0.1 Port={port3} CPUs=2
PartitionName=main Nodes=n1,n2 Default=YES MaxTime=INFINITE State=UP PriorityTier=1
PartitionName=urgent Nodes=n1,n2 MaxTime=INFINITE State=UP PriorityTier=9
PartitionName=second Nodes=n2 MaxTime=INFINITE State=UP PriorityTier=1
PartitionName=apart Nodes=n3 MaxTime=INFINITE State=UP PriorityTier=1
"""


def why_not() -> str:
    """Why no Slurm can be started here; "" if it can."""
    path = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin"])
    missing = [name for name in _PROGRAMS if shutil.which(name, path=path) is None]
    if missing:
        return f"{', '.join(missing)} not installed: apt-get install slurm-wlm munge"
    return "" if os.geteuid() == 0 else "Slurm's daemons need root here"


class PrivateSlurm:
    """Nodes of two CPUs each: two in `main`, one `apart`. `environment` is for Slurm's commands."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._daemons: dict[str, subprocess.Popen[bytes]] = {}
        host = socket.gethostname().partition(".")[0]
        names = ("port", "port1", "port2", "port3")
        ports = dict(zip(names, free_ports(len(names)), strict=True))
        conf = folder / "slurm.conf"
        conf.write_text(_CONF.format(host=host, folder=folder, **ports))
        self.environment = {"SLURM_CONF": str(conf)}
        (folder / "ctl").mkdir()
        try:
            self._start_munge()
            self.start("slurmctld")
            for node in _NODES:
                self.start(node)
            self.wait_until_up()
        except BaseException:
            self.close()
            raise

    def _start_munge(self) -> None:
        key = self.folder / "munge.key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o400)
        names = {"key-file": key, "socket": self.folder / "munge.sock"}
        names |= {n: self.folder / f"munge.{n}" for n in ("pid-file", "log-file", "seed-file")}
        options = [f"--{name}={path}" for name, path in names.items()]
        self._spawn("munged", ["munged", "--foreground", "--force", *options])
        self._until(lambda: (self.folder / "munge.sock").exists(), "munged")

    def start(self, name: str) -> None:
        """Start the controller, or the daemon of a node."""
        argv = ["slurmctld", "-D"] if name == "slurmctld" else ["slurmd", "-D", "-N", name]
        self._spawn(name, argv)

    def _spawn(self, name: str, argv: Sequence[str]) -> None:
        path = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin"])
        program = shutil.which(argv[0], path=path)
        assert program is not None
        with (self.folder / f"{name}.out").open("ab") as out:
            self._daemons[name] = subprocess.Popen(
                [program, *argv[1:]],
                stdout=out,
                stderr=out,
                stdin=subprocess.DEVNULL,
                env={"PATH": path, **self.environment},
                cwd=self.folder,
                start_new_session=True,
            )

    def kill(self, name: str) -> None:
        """Kill a daemon at once; what it had started goes on."""
        daemon = self._daemons.pop(name)
        daemon.send_signal(signal.SIGKILL)
        daemon.wait(20)

    def run(self, *argv: str) -> str:
        """Call one of Slurm's commands."""
        done = subprocess.run(
            argv, capture_output=True, text=True, timeout=60, env={**os.environ, **self.environment}
        )
        assert done.returncode == 0, f"{argv}: {done.stderr}"
        return done.stdout

    def wait_until_up(self) -> None:
        def is_up() -> bool:
            with contextlib.suppress(AssertionError):
                states = self.run("sinfo", "--noheader", "--Node", "--format=%N %t").split()
                return not set(_NODES) - set(states) and set(states[1::2]) <= {
                    *("idle", "mix", "alloc", "comp")
                }
            return False

        self._until(is_up, "nodes")

    def wait_until_saved(self, job_name: str) -> None:
        """Wait until the controller would know a job after it was killed: it saves now and then."""
        state = self.folder / "ctl" / "job_state"
        self._until(lambda: job_name.encode() in state.read_bytes(), "state")

    def wait_until_idle(self) -> None:
        self._until(lambda: not self.run("squeue", "--noheader", "--me").strip(), "jobs")

    def _until(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + _START_SECONDS
        while not condition():
            assert time.monotonic() < deadline, f"{what}: {self._account()}"
            time.sleep(0.1)

    def _account(self) -> str:
        logs = sorted(self.folder.glob("*.out")) + sorted(self.folder.glob("*.log"))
        return "\n".join(f"{log.name}: {log.read_text()[-1500:]}" for log in logs)

    def close(self) -> None:
        """Cancel all jobs, end the daemons, and what they have left behind."""
        if "slurmctld" in self._daemons:
            with contextlib.suppress(AssertionError, subprocess.TimeoutExpired):
                self.run("scancel", "--me")
                self.wait_until_idle()
        for name in (*_NODES, "slurmctld", "munged"):
            if (daemon := self._daemons.pop(name, None)) is not None:
                daemon.terminate()
                try:
                    daemon.wait(15)
                except subprocess.TimeoutExpired:
                    daemon.kill()
                    daemon.wait()
        for process in psutil.process_iter(["name"]):  # the keepers of steps
            with contextlib.suppress(psutil.Error):
                if process.name() == "slurmstepd" and Path(process.cwd()) == self.folder:
                    process.kill()


class SlurmLab(ClusterLab):
    """A home whose runs are jobs."""

    def job_of(self, run: Run) -> str:
        """The id of a run's job, once it is listed."""
        self.until(lambda: any(job.allocation_id == run.allocation_id for job in self._jobs()))
        return next(job.id for job in self._jobs() if job.allocation_id == run.allocation_id)

    def _jobs(self) -> tuple[Job, ...]:
        table = load_table(self.home.slurm)
        return () if table is None else table.jobs

    def processes(self) -> list[psutil.Process]:
        return Lab.processes(self)


@contextlib.contextmanager
def private_slurm(folder: Path) -> Iterator[PrivateSlurm]:
    if why := why_not():
        pytest.skip(why)
    made = PrivateSlurm(folder)
    try:
        yield made
    finally:
        made.close()
