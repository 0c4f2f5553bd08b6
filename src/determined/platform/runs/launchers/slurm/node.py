"""`python -m ...slurm.node FOLDER [part]`: on a node, keep the run whose shared folder that is.

The job's script becomes this process on the first node. A run on one node is kept here; for several
nodes it starts this module on each of them with `srun` (`part`), and ends all when one has failed.
Requests of the supervisor come through the folder, Slurm's as signals; both go to the keepers.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import FrameType

from determined._version import __version__
from determined.platform.machines.slots import free_ports, port_variables
from determined.platform.runs.folder import NOT_STARTED, RunExit, RunFolder
from determined.platform.runs.launchers.remote import storage_probe
from determined.platform.runs.launchers.remote.mirror import TENSORBOARD
from determined.platform.runs.launchers.slurm.shared import SharedFolder

_KEEPER = Path(__file__).parents[2] / "keeper" / "__main__.py"
_POLL_SECONDS = 0.25
_OTHERS_GRACE_SECONDS = 10.0
_PROBE_SECONDS = 120.0
_SIGNALS = {"TERM": signal.SIGTERM, "QUIT": signal.SIGQUIT}


class _Requests:
    """What was asked of this process, by signals and by the folder."""

    def __init__(self, folder: SharedFolder) -> None:
        self._folder = folder
        self._received = ""
        for number in _SIGNALS.values():
            signal.signal(number, self._receive)

    def _receive(self, number: int, frame: FrameType | None) -> None:
        self._received = "QUIT" if number == signal.SIGQUIT else self._received or "TERM"

    @property
    def now(self) -> str:
        """TERM, QUIT or "", the strongest so far."""
        return max(self._received, self._folder.request, key=("", "TERM", "QUIT").index)


def main(argv: list[str]) -> int:
    folder = SharedFolder(Path(argv[0]))
    requests = _Requests(folder)
    if argv[1:] == ["part"]:
        return _keep(folder, int(os.environ["SLURM_NODEID"]), requests)
    is_alone = len(folder.parts()) == 1
    addresses = ["127.0.0.1"] if is_alone else _addresses()
    folder.save_rendezvous(addresses, port_variables(free_ports()))
    return _keep(folder, 0, requests) if is_alone else _start_parts(folder, requests)


def _start_parts(folder: SharedFolder, requests: _Requests) -> int:
    parts = folder.parts()
    words = [sys.executable, "-m", __spec__.name, str(folder.path), "part"]
    options = [f"--nodes={len(parts)}", f"--ntasks={len(parts)}", "--ntasks-per-node=1"]
    options += ["--kill-on-bad-exit=0", "--input=none"]
    if count := os.environ.get("SLURM_CPUS_PER_TASK"):
        options.append(f"--cpus-per-task={count}")
    step = subprocess.Popen(["srun", *options, *words], start_new_session=True)
    deadline: float | None = None
    while step.poll() is None:
        time.sleep(_POLL_SECONDS)
        if word := requests.now:
            _pass_on(folder, word)
        ends = [part.exit for part in parts]
        if deadline is None and any(end is not None and end.exit_code for end in ends):
            deadline = time.monotonic() + _OTHERS_GRACE_SECONDS
        if deadline is not None and time.monotonic() > deadline:
            _pass_on(folder, "TERM")  # keepers end what does not listen
    return step.returncode


def _pass_on(folder: SharedFolder, word: str) -> None:
    if folder.request not in (word, "QUIT"):
        with contextlib.suppress(OSError):
            folder.ask(word)


def _keep(folder: SharedFolder, index: int, requests: _Requests) -> int:
    run, order = folder.part(index), folder.order
    node = os.environ.get("SLURMD_NODENAME") or socket.gethostname()
    notes, problem = _compare(node, order["expects"])
    problem = problem or _storage_problem(run, order, node)
    if problem:
        run.save_exit(RunExit(1, NOT_STARTED, problem, ended_at=time.time()))
        return 1
    _settle(run, folder, index, node, notes)
    keeper = subprocess.Popen([sys.executable, "-I", "-S", str(_KEEPER), str(run.path)])
    passed = ""
    while True:
        try:
            keeper.wait(_POLL_SECONDS)
            break
        except subprocess.TimeoutExpired:
            word = requests.now
            # A keeper can receive signals once it has recorded its process.
            if word != passed and run.keeper is not None:
                keeper.send_signal(_SIGNALS[word])
                passed = word
    end = run.exit
    return 1 if end is None else min(end.exit_code, 255)


def _settle(run: RunFolder, folder: SharedFolder, index: int, node: str, notes: list[str]) -> None:
    """Complete the part's folder with what only its node knows."""
    rendezvous, order = folder.rendezvous, folder.order
    info, environment = run.read_info(), run.environment
    if "rendezvous" in info:
        info["rendezvous"] |= {
            "container_addrs": rendezvous["addresses"],
            "container_rank": index,
        }
    if "cluster" in info:
        info["cluster"]["agent_id"] = node
    environment |= {**rendezvous["ports"], "DET_AGENT_ID": node}
    named = {"DET_RUN_DIR": run.path, "DET_INFO_DIR": run.info, "DET_WORKDIR": run.workdir}
    named["DET_TENSORBOARD_DIR"] = run.path / TENSORBOARD
    environment |= {name: str(path) for name, path in named.items() if name in environment}
    environment.pop("DET_HOME", None)  # there is none here, and none may be created
    environment = _with_changes(environment, folder.path / "before")
    environment["SLURM_JOB_ID"] = os.environ.get("SLURM_JOB_ID", "")
    for name in ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"):
        if name in os.environ:
            environment[name] = os.environ[name]
    if order["has_gpus"] and "resources" in info:
        devices = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
        info["resources"]["gpu_uuids"] = [device for device in devices if device]
    spec = run.spec
    prologue = "".join(f"{note}\n" for note in notes) + spec.prologue
    run.create(spec._replace(prologue="" if index else prologue), environment, info)


def _with_changes(environment: dict[str, str], before: Path) -> dict[str, str]:
    """The variables with what modules and the prolog have changed; lists of paths are extended."""
    try:
        words = before.read_bytes().decode(errors="surrogateescape").split("\0")
    except FileNotFoundError:
        return environment
    old = dict(word.split("=", 1) for word in words if "=" in word)
    changed = {n: v for n, v in os.environ.items() if old.get(n) != v and n not in ("_", "SHLVL")}
    for name, value in changed.items():
        known = environment.get(name)
        if known and old.get(name) and value.endswith(old[name]):
            value = value.removesuffix(old[name]) + known
        environment[name] = value
    return environment


def _addresses() -> list[str]:
    """Where the nodes of this job reach each other, in their order: as Slurm itself does."""
    listed = os.environ.get("SLURM_JOB_NODELIST", "")
    names = _ask("scontrol", "show", "hostnames", listed).split()
    described = _ask("scontrol", "show", "--oneliner", "node", listed).splitlines()
    facts = [dict(w.split("=", 1) for w in line.split() if "=" in w) for line in described]
    known = {fact.get("NodeName", ""): fact.get("NodeAddr", "") for fact in facts}
    return [known.get(name) or name for name in names] or [socket.gethostname()]


def _ask(*argv: str) -> str:
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        return subprocess.run(argv, capture_output=True, text=True, timeout=60, check=True).stdout
    return ""


def _compare(node: str, expects: Mapping[str, str]) -> tuple[list[str], str]:
    """Notes on packages of other versions than the experiment's, and what keeps it from running."""
    notes = []
    for name, expected in expects.items():
        try:
            found = __version__ if name == "determined-pytorch" else version(name)
        except PackageNotFoundError:
            found = "no version"
        if found == expected:
            continue
        text = f"node {node} has {found} of {name}, the experiment was created with {expected}"
        if name == "determined-pytorch" or found == "no version":
            return [], f"{text}. Install the same version there."
        notes.append(f"{text}: results may differ.")
    return notes, ""


def _storage_problem(run: RunFolder, order: Mapping[str, object], node: str) -> str:
    """What keeps checkpoints from being saved from this node; "" if nothing."""
    section = order["storage"]
    assert isinstance(section, dict)
    problem = ""
    if section.get("type") in storage_probe.FOLDERS:
        problem = storage_probe.problem_with_folder(section, str(order["marker"]))
    elif section and order["probes"]:
        problem = storage_probe.problem_with_store(
            section, sys.executable, run.environment, _PROBE_SECONDS
        )
    return f"checkpoint_storage: node {node} {problem}" if problem else ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
