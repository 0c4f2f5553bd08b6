"""DistributedContext: which rank this process is, and small control messages between ranks.

Every wait is bounded (`DET_COLLECTIVE_TIMEOUT` seconds, 1800 by default), and a rank that dies or
fails raises `determined.errors.DistributedError` on the others within moments.
Read `ranks/group.py` for the collectives, `ranks/rendezvous.py` for how ranks find each other.
"""

from __future__ import annotations

import atexit
import contextlib
import hmac
import logging
import os
import secrets
import sys
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from determined._info import job_secret
from determined.core.ranks.channel import Connection
from determined.core.ranks.group import Failure, Group, Operation, PeerFailedError, SharedFailure
from determined.core.ranks.listeners import (
    LOOPBACK,
    Deadline,
    Listener,
    accept_members,
    connect,
    is_loopback,
    listen,
)
from determined.core.ranks.rendezvous import DEFAULT_PUB_PORT, PORTS_TO_TRY, Rendezvous
from determined.core.ranks.stop_agreement import StopAgreement
from determined.core.ranks.tf_config import read_tf_config
from determined.errors import DistributedError

T = TypeVar("T")

logger = logging.getLogger("determined.core")

_DEFAULT_TIMEOUT_SECONDS = 1800.0


class DistributedContext:
    """The ranks of one job, and collectives of picklable objects among them.

    For small control data only; tensors belong to the training framework's own collectives. All
    ranks (for `*_local`: all ranks of a machine) must call the same methods in the same order.
    Construction with `size > 1` returns when all ranks are connected.

    Give all six numbers or none (then it is a job of one rank).

    Args:
        rank: index in the whole job, of `size`; rank 0 is the chief.
        local_rank: index on this machine, of `local_size`.
        cross_rank: index of this machine, of `cross_size`.
        chief_ip: address of the chief's machine; required if there are several machines.
        pub_port: the chief's port, used by ranks that were started without a common launcher; jobs
            on one machine need different ones. A launcher's ranks use any free port.
        pull_port: second choice, where a launcher or DET_COMM_SECRET distinguishes jobs.
        port_offset: accepted for old callers, without effect.
        force_tcp: accepted for old callers; connections are TCP in any case.
    """

    def __init__(
        self,
        *,
        rank: int | None = None,
        size: int | None = None,
        local_rank: int | None = None,
        local_size: int | None = None,
        cross_rank: int | None = None,
        cross_size: int | None = None,
        chief_ip: str | None = None,
        pub_port: int = DEFAULT_PUB_PORT,
        pull_port: int = DEFAULT_PUB_PORT + PORTS_TO_TRY,
        port_offset: int = 0,
        force_tcp: bool = False,
    ) -> None:
        numbers = _check_numbers(
            rank=rank,
            size=size,
            local_rank=local_rank,
            local_size=local_size,
            cross_rank=cross_rank,
            cross_size=cross_size,
        )
        self.rank, self.size = numbers["rank"], numbers["size"]
        self.local_rank, self.local_size = numbers["local_rank"], numbers["local_size"]
        self.cross_rank, self.cross_size = numbers["cross_rank"], numbers["cross_size"]
        one_machine = self.local_size == self.size
        assert one_machine or chief_ip is not None, (
            f"`chief_ip` is required when ranks are on several machines (`local_size` is "
            f"{self.local_size}, `size` is {self.size}): pass the address of rank 0's machine."
        )

        self._closed = False
        self.timeout_seconds = _timeout_seconds()
        self._shared_failure = SharedFailure()
        self._group: Group | None = None
        self._local_group: Group | None = None
        self._stop_agreement: StopAgreement | None = None
        if self.size == 1:
            return
        _open_contexts.add(self)
        try:
            elsewhere = None if one_machine or is_loopback(chief_ip or "") else chief_ip
            self._connect(elsewhere, _ports(pub_port, pull_port))
        except BaseException as error:
            self.close(error)
            raise

    @classmethod
    def from_torch_distributed(cls, chief_ip: str | None = None) -> DistributedContext:
        """Take the ranks from the variables that torchrun sets; a missing one is a KeyError."""
        return cls(
            rank=int(os.environ["RANK"]),
            size=int(os.environ["WORLD_SIZE"]),
            local_rank=int(os.environ["LOCAL_RANK"]),
            local_size=int(os.environ["LOCAL_WORLD_SIZE"]),
            cross_rank=int(os.environ["GROUP_RANK"]),
            cross_size=int(os.environ["GROUP_WORLD_SIZE"]),
            chief_ip=_chief_ip(chief_ip),
        )

    @classmethod
    def from_deepspeed(cls, chief_ip: str | None = None) -> DistributedContext:
        """Take the ranks from variables of deepspeed's launcher; a missing one is a KeyError."""
        return cls(
            rank=int(os.environ["RANK"]),
            size=int(os.environ["WORLD_SIZE"]),
            local_rank=int(os.environ["LOCAL_RANK"]),
            local_size=int(os.environ["LOCAL_SIZE"]),
            cross_rank=int(os.environ["CROSS_RANK"]),
            cross_size=int(os.environ["CROSS_SIZE"]),
            chief_ip=_chief_ip(chief_ip),
        )

    @classmethod
    def from_horovod(cls, hvd: Any, chief_ip: str | None = None) -> DistributedContext:
        """Take the ranks from an initialised horovod module."""
        return cls(
            rank=hvd.rank(),
            size=hvd.size(),
            local_rank=hvd.local_rank(),
            local_size=hvd.local_size(),
            cross_rank=hvd.cross_rank(),
            cross_size=hvd.cross_size(),
            chief_ip=_chief_ip(chief_ip),
        )

    @classmethod
    def from_tf_config(cls) -> tuple[DistributedContext, Any]:
        """Take the ranks from TF_CONFIG; return the context and TensorFlow's strategy for it.

        One process per worker; all of them wait for each other here. A missing TF_CONFIG is a
        KeyError, a task that is not a worker a RuntimeError.
        """
        ranks = read_tf_config(os.environ["TF_CONFIG"])
        try:
            import tensorflow
        except ImportError as error:
            raise ImportError(
                "DistributedContext.from_tf_config() needs TensorFlow, which cannot be imported "
                f"({error}): install it with `pip install tensorflow`."
            ) from error
        strategy = tensorflow.distribute.MultiWorkerMirroredStrategy()
        return cls(**ranks), strategy

    def get_rank(self) -> int:
        """Return `rank`: this process among all of the job; 0 is the chief."""
        return self.rank

    def get_local_rank(self) -> int:
        """Return `local_rank`: this process among those on its machine."""
        return self.local_rank

    def get_size(self) -> int:
        """Return `size`: the number of processes of the job."""
        return self.size

    def get_num_agents(self) -> int:
        """Return `cross_size`: the number of machines."""
        return self.cross_size

    def gather(self, stuff: Any) -> list[Any] | None:
        """Return all ranks' objects in rank order on the chief, None elsewhere.

        The others return only after the chief has received everything.
        """
        group = self._usable(self._group)
        return group.gather(Operation.GATHER, stuff) if group else [stuff]

    def gather_local(self, stuff: Any) -> list[Any] | None:
        """Like `gather`, among the ranks of this machine; local rank 0 receives."""
        group = self._usable(self._local_group)
        return group.gather(Operation.GATHER_LOCAL, stuff) if group else [stuff]

    def allgather(self, stuff: Any) -> list[Any]:
        """Return all ranks' objects in rank order, on every rank."""
        group = self._usable(self._group)
        return group.allgather(Operation.ALLGATHER, stuff) if group else [stuff]

    def allgather_local(self, stuff: Any) -> list[Any]:
        """Like `allgather`, among the ranks of this machine, in the order of local ranks."""
        group = self._usable(self._local_group)
        return group.allgather(Operation.ALLGATHER_LOCAL, stuff) if group else [stuff]

    def broadcast(self, stuff: Any) -> Any:
        """Return the chief's object on every rank; what the others pass is ignored."""
        group = self._usable(self._group)
        return group.broadcast(Operation.BROADCAST, stuff) if group else stuff

    def broadcast_local(self, stuff: Any = None) -> Any:
        """Like `broadcast`, from local rank 0 to the ranks of this machine."""
        group = self._usable(self._local_group)
        return group.broadcast(Operation.BROADCAST_LOCAL, stuff) if group else stuff

    @contextlib.contextmanager
    def local_chief_first(self) -> Iterator[None]:
        """Run the body on local rank 0 first, then on the other ranks of the machine.

        Use it to let one rank download or unpack files that the others then find. The body must
        not use collectives. If it fails on local rank 0 the others raise DistributedError.
        """
        if self.local_rank != 0:
            failure: Failure | None = self.broadcast_local()
            if failure is not None:
                raise failure.as_error()
            yield
            return
        try:
            yield
        except Exception as error:
            self.broadcast_local(Failure.from_exception(self.rank, error))
            raise
        self.broadcast_local(None)

    @property
    def failure(self) -> PeerFailedError | None:
        """The failure of another rank (or of this one) that ended the job's collectives, if any.

        Available without a collective, so a long computation can check it.
        """
        failure = self._shared_failure.failure
        return failure.as_error() if failure else None

    def wait_for_failure(self, timeout_seconds: float) -> PeerFailedError | None:
        """Wait for a failure, up to a timeout, and return `failure`."""
        with self._shared_failure.changed:
            self._shared_failure.changed.wait_for(
                lambda: self._shared_failure.failure is not None, timeout_seconds
            )
        return self.failure

    @property
    def last_collective(self) -> str:
        """The collective that this rank entered last, for hang reports."""
        groups = {"": self._group, "local: ": self._local_group}
        return "; ".join(name + g.last_entered for name, g in groups.items() if g) or "none"

    def fail(self, error: BaseException) -> None:
        """Notify all ranks that this one has failed; their current or next collective raises."""
        if not self._closed:
            self._shared_failure.report(Failure.from_exception(self.rank, error))

    def close(self, error: BaseException | None = None) -> None:
        """Leave the job; calling it again does nothing. With `error`, all others are notified."""
        if self._closed:
            return
        if error is not None:
            self.fail(error)
        self._closed = True
        _open_contexts.discard(self)
        for group in self._groups():
            group.close()

    def __enter__(self) -> DistributedContext:
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        self.close(error)

    def _connect(self, chief_ip: str | None, ports: tuple[int, ...]) -> None:
        seconds = self.timeout_seconds
        rendezvous = Rendezvous(self.rank, self.size, chief_ip, ports, seconds)
        self._group = Group(range(self.size), self.rank, self._shared_failure, seconds)
        self._stop_agreement = StopAgreement(self._group, self.rank, self.size)
        rendezvous.connect(self._adder(self._group, is_first=True), self._group.missing)

        script = os.path.realpath(sys.argv[0]) if sys.argv else ""
        everybody = self.allgather((self.cross_rank, self.local_rank, script))
        if rendezvous.is_anonymous and self.rank == 0:
            _warn_of_two_scripts([other for _, _, other in everybody])
        ranks = [rank for rank, (cross, *_) in enumerate(everybody) if cross == self.cross_rank]
        ranks.sort(key=lambda rank: everybody[rank][1])
        places = [everybody[rank][1] for rank in ranks]
        if places != list(range(self.local_size)):
            raise ValueError(
                f"machine {self.cross_rank} should have local ranks 0 to {self.local_size - 1}, "
                f"but the ranks there say {places}."
            )
        if self.local_size == self.size:
            self._local_group = self._group
        else:
            self._connect_locally(ranks)

    def _connect_locally(self, ranks: list[int]) -> None:
        """Connect the ranks of this machine: all of them know each other by now."""
        key = secrets.token_bytes(32)
        is_host = self.local_rank == 0 and self.local_size > 1
        with listen(LOOPBACK, [0]) if is_host else contextlib.nullcontext() as listener:
            port = 0 if listener is None else listener.getsockname()[1]
            port, key = self.allgather((port, key))[ranks[0]]
            # Messages are not encrypted: whoever reads them on the network lacks the job's secret.
            key = hmac.digest((job_secret() or "").encode(), key, "sha256")
            if self.local_size > 1:
                self._local_group = group = Group(
                    ranks, self.local_rank, self._shared_failure, self.timeout_seconds
                )
                add = self._adder(group)
                if listener is None:
                    add(0, connect(LOOPBACK, port, key, self.local_rank))
                else:
                    deadline = Deadline(self.timeout_seconds)
                    accept_members(
                        [Listener(listener, key)], add, group.missing, deadline, "Are they stuck?"
                    )
        self.gather(None)  # so that no rank continues before all machines are ready

    def _adder(self, group: Group, is_first: bool = False) -> Callable[[int, Connection], None]:
        def add(member: int, connection: Connection) -> None:
            connection.set_timeouts(self.timeout_seconds, remote=self.local_size != self.size)
            group.add(member, connection)
            if is_first:
                self._shared_failure.add_listener(connection)

        return add

    def _groups(self) -> list[Group]:
        distinct = {id(group): group for group in (self._group, self._local_group) if group}
        return list(distinct.values())

    def _usable(self, group: Group | None) -> Group | None:
        if self._closed and self.size > 1:
            raise DistributedError(
                f"rank {self.rank} called a collective of a distributed context that is closed, or "
                "in a forked child process: only the process that made it can use it."
            )
        return group

    def _forget(self) -> None:
        self._closed = True
        for group in self._groups():
            group.forget()


class DummyDistributedContext(DistributedContext):
    """A job with a single rank: every collective returns at once."""

    def __init__(self) -> None:
        super().__init__()


def _run_on_rank_0_and_broadcast(
    func: Callable[[], T], distributed: DistributedContext | None = None
) -> T:
    """Run `func` on the chief and return its result, which must be true, on every rank."""
    if distributed is None:
        distributed = DummyDistributedContext()
    result: Any = None
    if distributed.rank == 0:
        try:
            result = func()
        except Exception as error:
            distributed.broadcast(Failure.from_exception(0, error))
            raise
    result = distributed.broadcast(result)
    if isinstance(result, Failure):
        raise result.as_error()
    assert result, f"{func!r} must return something on the chief, got {result!r}."
    answer: T = result
    return answer


def _check_numbers(**numbers: int | None) -> dict[str, int]:
    missing = [name for name, number in numbers.items() if number is None]
    if missing and len(missing) < len(numbers):
        raise ValueError(
            f"Give all of {', '.join(f'`{name}`' for name in numbers)}, or none of them; "
            f"missing: {', '.join(missing)}."
        )
    given = {
        name: (1 if name.endswith("size") else 0) if number is None else number
        for name, number in numbers.items()
    }
    for scope in ("", "local_", "cross_"):
        index, count = given[f"{scope}rank"], given[f"{scope}size"]
        if not 0 <= index < count:
            raise ValueError(
                f"`{scope}rank` must be at least 0 and below `{scope}size`, got {index} of {count}."
            )
    return given


def _timeout_seconds() -> float:
    text = os.environ.get("DET_COLLECTIVE_TIMEOUT") or str(_DEFAULT_TIMEOUT_SECONDS)
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < 1e9:
        raise ValueError(
            f"DET_COLLECTIVE_TIMEOUT must be a number of seconds above 0, got {text!r}."
        )
    return seconds


def _ports(pub_port: int, pull_port: int) -> tuple[int, ...]:
    if pub_port == DEFAULT_PUB_PORT:
        pub_port = int(os.environ.get("INTER_TRAIN_PROCESS_COMM_PORT_1") or pub_port)
    if pull_port == DEFAULT_PUB_PORT + PORTS_TO_TRY:
        pull_port = int(
            os.environ.get("INTER_TRAIN_PROCESS_COMM_PORT_2") or pub_port + PORTS_TO_TRY
        )
    ports = (pub_port, pull_port, *range(pub_port + 1, pub_port + PORTS_TO_TRY))
    return tuple(port for port in ports if port < 65536)


def _warn_of_two_scripts(scripts: list[str]) -> None:
    """Only equal numbers connected these ranks: they may belong to two jobs."""
    others = [(rank, script) for rank, script in enumerate(scripts) if script != scripts[0]]
    if others:
        rank, script = others[0]
        logger.warning(
            "rank 0 runs %s but rank %d runs %s: if these are two jobs, give each its own "
            "`pub_port` or DET_COMM_SECRET.",
            scripts[0],
            rank,
            script,
        )


def _chief_ip(given: str | None) -> str | None:
    return given or os.environ.get("DET_CHIEF_IP") or os.environ.get("MASTER_ADDR")


# Only for the two moments that concern a whole process: its end and its forking.
_open_contexts: set[DistributedContext] = set()


def _leave_at_exit() -> None:
    # An uncaught exception has been printed by now: tell the other ranks about it.
    error = getattr(sys, "last_value", None)
    for context in list(_open_contexts):
        context.close(error)


def _forget_in_child() -> None:
    for context in _open_contexts:
        context._forget()
    _open_contexts.clear()


atexit.register(_leave_at_exit)
os.register_at_fork(after_in_child=_forget_in_child)
