"""Start a script as one process per slot, with torchrun, and report how it ended.

    python -m determined.launch.torch_distributed [[TORCH_OVERRIDES...] --] SCRIPT...
    python -m determined.launch.torch_distributed [[TORCH_OVERRIDES...] --] --trial TRIAL

SCRIPT is a command with its arguments, or just a Python file with its arguments.

What is before the first `--` goes to torchrun: `--nproc_per_node 4`, `--max_restarts 3`, or the
rendezvous of several machines. Without it the script runs on this machine, one process per GPU,
or one process on the CPU. Output lines carry their rank; the first failure is shown last, with
its traceback, and gives the exit code. A stop by a signal to the launcher is no failure.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from determined._info import ClusterInfo, get_cluster_info, job_secret
from determined._os.parent_death import end_with_parent
from determined.launch.wrap_rank import STOP_SIGNALS, ExitRecord, forwarding
from determined.platform.runs.warm import ranks

_ANY_PORT = 9  # nothing is sent
_DEFAULT_PORT = "29400"
_SHOWN_LINES = 40
# torch puts its own tag before each line of a traceback once a process group exists.
_PEER_FAILURE = re.compile(
    r"(\[rank\d+\]: )?determined\.(core\.(_group|ranks\.group)\.|errors\.DistributedError)"
)
_GPU_DEVICES = ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg")


@dataclass(frozen=True)
class Machines:
    """Where the workers of this launch run."""

    count: int
    node_rank: int
    slots: int
    chief_ip: str | None  # None: only torchrun will know
    secret: str | None
    is_one_of_several: bool = False


@dataclass(frozen=True)
class Stop:
    """A signal that asked this launcher to stop."""

    number: int
    monotonic_seconds: float


def parse_args(args: list[str]) -> tuple[list[str], list[str]]:
    """Split a command line into torchrun's options and the worker's command."""
    parser = argparse.ArgumentParser(
        prog="python -m determined.launch.torch_distributed",
        usage="%(prog)s [[TORCH_OVERRIDES...] --] (--trial TRIAL | SCRIPT...)",
        description="Start a script as one process per slot, with torchrun.",
        epilog="Options before the first -- go to torchrun; see its --help.",
        allow_abbrev=False,
    )
    parser.add_argument("--trial", help="a trial class to run, as module:Class")
    parser.add_argument("script", nargs=argparse.REMAINDER, help="the command to run")
    overrides: list[str] = []
    if "--" in args:
        overrides, args = args[: args.index("--")], args[args.index("--") + 1 :]
    # Only what precedes the script is ours: its own options may look the same.
    if args and not args[0].startswith("-"):
        return overrides, _runnable(args)
    parsed = parser.parse_args(args)
    if parsed.trial is not None:
        if parsed.script:
            _refuse(parser, f"extra arguments after --trial: {' '.join(parsed.script)}")
        return overrides, [sys.executable, "-m", "determined.exec.harness", parsed.trial]
    if not parsed.script:
        _refuse(parser, "empty script: give a command to run, or --trial module:Class")
    return overrides, _runnable(parsed.script)


def _runnable(script: list[str]) -> list[str]:
    """Let a Python file stand for itself, as with torchrun."""
    is_program = os.access(script[0], os.X_OK)
    return [sys.executable, *script] if script[0].endswith(".py") and not is_program else script


def create_launch_cmd(
    num_nodes: int, proc_per_node: int, node_rank: int, master_addr: str, override_args: list[str]
) -> list[str]:
    """Return torchrun's part of the command; an option of the user comes later, so it counts."""
    port, torchrun, rendezvous = os.environ.get("C10D_PORT"), "torch.distributed.run", []
    if num_nodes > 1:
        rendezvous = ["--master_addr", master_addr, "--master_port", port or _DEFAULT_PORT]
    elif not (_several_machines(override_args) or _chooses_rendezvous(override_args)):
        torchrun = "determined.launch.torchrun"
        rendezvous = ["--rdzv_backend", "loopback", "--rdzv_endpoint", f"localhost:{port or 0}"]
        rendezvous += ["--rdzv_id", str(uuid.uuid4()), "--local_addr", "localhost"]
    return [
        *(sys.executable, "-m", torchrun),
        *("--nnodes", str(num_nodes)),
        *("--nproc_per_node", str(proc_per_node)),
        *("--node_rank", str(node_rank)),
        *("--max_restarts", "0"),
        *rendezvous,
        *("--module", *override_args),
    ]


def create_log_redirect_cmd() -> list[str]:
    """Return the module, as torchrun runs it, that tags a worker's output with its rank."""
    return ["determined.launch.wrap_rank", "RANK", "--"]


def main(override_args: list[str], script: list[str]) -> int:
    """Run the script to its end; return 0, or the exit code of the rank that failed first."""
    machines = _machines(get_cluster_info(), override_args)
    is_local = machines.count == 1 and not _several_machines(override_args)
    command = [
        *create_launch_cmd(
            machines.count,
            machines.slots,
            machines.node_rank,
            machines.chief_ip or "localhost",
            override_args,
        ),
        *create_log_redirect_cmd(),
        *script,
    ]
    with tempfile.TemporaryDirectory(prefix="determined-launch-") as name:
        status, stop = _run(command, _environment(machines, name, is_local=is_local))
        records = [ExitRecord(**json.loads(path.read_text())) for path in Path(name).glob("*.json")]
    if status == 0:
        return 0
    first = find_first_failure(records)
    if first is None:
        return status if status > 0 else 128 - status
    sys.stderr.write(describe(first, records, stop))
    return first.exit_code or max(record.exit_code for record in records)


def find_first_failure(records: Iterable[ExitRecord]) -> ExitRecord | None:
    """Return the end, in the last attempt, that made other ranks fail.

    Ranks that were told to stop, or that only report another rank's failure, may end before the
    rank that caused it, so they come second. If none but such failed, and a rank had left by itself
    before, without a failure, then that was it.
    """
    records = list(records)
    last = max((record.attempt for record in records), default=0)
    ended = sorted(
        (record for record in records if record.attempt == last),
        key=lambda r: (r.was_signalled, _reports_peer_failure(r), r.monotonic_seconds),
    )
    first = next((record for record in ended if record.exit_code != 0), None)
    if first is not None and (_reports_peer_failure(first) or first.was_signalled):
        for record in ended:
            left_before = record.monotonic_seconds < first.monotonic_seconds
            if record.exit_code == 0 and not record.was_signalled and left_before:
                return record
    return first


def describe(first: ExitRecord, records: list[ExitRecord], stop: Stop | None = None) -> str:
    """Return the summary that ends a failed launch."""
    others = sorted(
        r.rank for r in records if r.attempt == first.attempt and r is not first and r.exit_code
    )
    is_stopped = stop is not None and stop.monotonic_seconds < first.monotonic_seconds
    if stop is not None and is_stopped and _ended_by(stop.number, first):
        return f"\n=== stopped by {signal.Signals(stop.number).name}\n"
    how = "failed" if first.exit_code else "left"
    lines = [
        "",
        f"=== rank {first.rank} {how} first, with {_ending(first.exit_code)}"
        + (f" (attempt {first.attempt + 1})" if first.attempt else "")
        + (f", after {signal.Signals(stop.number).name}" if stop and is_stopped else ""),
        *first.last_lines[-_SHOWN_LINES:],
        *([] if first.last_lines else ["(it wrote nothing to stderr)"]),
    ]
    if others:
        lines.append(f"=== then ended: rank {', '.join(map(str, others))}")
    return "\n".join([*lines, ""])


def _ended_by(number: int, record: ExitRecord) -> bool:
    """Say whether a rank ended the way one that was told to stop does, which is no failure."""
    return record.was_signalled and record.exit_code in (0, 128 + number, 128 + signal.SIGTERM)


def _machines(info: ClusterInfo | None, override_args: list[str]) -> Machines:
    secret = job_secret()
    if info is not None:
        addresses = info.container_addrs
        return Machines(
            len(addresses),
            info.container_rank,
            max(1, len(info.slot_ids)),
            addresses[0],
            secret,
            is_one_of_several=len(addresses) > 1,
        )
    slots = _count_gpus() or 1
    if _several_machines(override_args):
        chief = _options(override_args).get("master_addr")
        return Machines(1, 0, slots, chief, secret, is_one_of_several=True)
    return Machines(1, 0, slots, "127.0.0.1", secret or secrets.token_hex(32))


def _environment(machines: Machines, launch_directory: str, *, is_local: bool) -> dict[str, str]:
    environment = {
        **os.environ,
        "USE_TORCH_DISTRIBUTED": "True",
        "DET_LAUNCH_DIR": launch_directory,
        # Otherwise restarted workers may read stale addresses from the first attempt's store.
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
    }
    environment.setdefault("PYTHONUNBUFFERED", "1")  # pipes are block-buffered by default
    if is_local and (loopback := _loopback()) is not None:
        environment.setdefault("GLOO_SOCKET_IFNAME", loopback)  # else other machines can connect
    if machines.chief_ip is not None:
        environment["DET_CHIEF_IP"] = machines.chief_ip
        if machines.is_one_of_several and (name := _interface_to(machines.chief_ip)):
            environment.setdefault("GLOO_SOCKET_IFNAME", name)
    if machines.secret is not None:
        environment["DET_COMM_SECRET"] = machines.secret
    return environment


def _run(command: list[str], environment: dict[str, str]) -> tuple[int, Stop | None]:
    """Return torchrun's exit status, and what this launcher was stopped by, if anything."""
    # A session of its own, so that Ctrl-C reaches it once, from us; and tied to us, so that it
    # stops its workers even if we are killed.
    process = ranks.fork(command, environment, (0, 1, 2), signal.SIGTERM) or subprocess.Popen(
        command,
        env=environment,
        start_new_session=True,
        preexec_fn=lambda: end_with_parent(signal.SIGTERM),
    )

    stops: list[Stop] = []

    def pass_on(number: int) -> None:
        if number in STOP_SIGNALS:
            stops.append(Stop(number, time.monotonic()))
        if number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGWINCH):
            _signal_workers(process.pid, number)  # meant for workers; they would end torchrun
        else:
            process.send_signal(number)

    with forwarding(pass_on):
        status = process.wait()
    ranks.end_fork_server()
    return status, stops[0] if stops else None


def _signal_workers(pid: int, number: int) -> None:
    import psutil

    with contextlib.suppress(psutil.NoSuchProcess):
        for child in psutil.Process(pid).children():
            child.send_signal(number)


def _loopback() -> str | None:
    """The name of the loopback interface; None if it has none of the usual ones."""
    names = {name for _, name in socket.if_nameindex()}
    return next((name for name in ("lo", "lo0") if name in names), None)


def _interface_to(host: str) -> str | None:
    """The interface of this machine that `host` is reached through; None if that is loopback.

    Gloo listens on the address of the host name, which is often 127.0.1.1, where no other machine
    can reach it.
    """
    import psutil

    try:
        family, _, _, _, target = socket.getaddrinfo(host, _ANY_PORT, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect(target)
            own = probe.getsockname()[0]
    except OSError:  # gloo will report it
        return None
    if own.startswith("127.") or own == "::1":
        return None
    for name, addresses in psutil.net_if_addrs().items():
        if any(address.address.partition("%")[0] == own for address in addresses):
            return name
    return None


def _count_gpus() -> int:
    if not any(Path(device).exists() for device in _GPU_DEVICES):
        return 0  # importing torch to learn this would take seconds
    import torch

    return torch.cuda.device_count()


def _options(args: list[str]) -> dict[str, str]:
    """Return torchrun's options by name, in whichever of its spellings they were given."""
    options = {}
    for position, arg in enumerate(args):
        if arg.startswith("--"):
            name, equals, value = arg[2:].partition("=")
            following = args[position + 1 : position + 2]
            options[name.replace("-", "_")] = value if equals else "".join(following)
    return options


def _several_machines(override_args: list[str]) -> bool:
    return _options(override_args).get("nnodes", "1") not in ("1", "1:1")


def _chooses_rendezvous(override_args: list[str]) -> bool:
    names = ("master_addr", "master_port", "rdzv_backend", "rdzv_endpoint", "standalone")
    return not _options(override_args).keys().isdisjoint(names)


def _reports_peer_failure(record: ExitRecord) -> bool:
    final = next((line for line in reversed(record.last_lines) if line.strip()), "")
    return _PEER_FAILURE.match(final) is not None


def _ending(exit_code: int) -> str:
    if exit_code > 128:
        with contextlib.suppress(ValueError):
            return f"exit code {exit_code} ({signal.Signals(exit_code - 128).name})"
    return f"exit code {exit_code}"


def _refuse(parser: argparse.ArgumentParser, message: str) -> None:
    parser.print_usage(sys.stderr)
    parser.exit(1, f"{parser.prog}: error: {message}\n")


if __name__ == "__main__":
    sys.exit(main(*parse_args(sys.argv[1:])))
