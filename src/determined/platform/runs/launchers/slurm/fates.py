"""How a run ended that its processes cannot explain, from the state of its job. Pure."""

from __future__ import annotations

import signal
import time

from determined.platform.machines.slurm import Job
from determined.platform.runs.folder import CANCELED, LOST, NOT_STARTED, SIGNALLED, RunExit

_INFRASTRUCTURE = {
    "NODE_FAIL": "a node of its job failed",
    "BOOT_FAIL": "a node of its job could not boot",
    "PREEMPTED": "its job was preempted",
    "TIMEOUT": "its job reached its time limit",
    "DEADLINE": "its job reached its deadline",
    "REVOKED": "its job was revoked",
    "PENDING": "its job was put back into the queue",
}
_KILLED = 128 + signal.SIGKILL


def killed_by_us() -> RunExit:
    return RunExit(_KILLED, SIGNALLED, signal="SIGKILL", stopped_by="SIGKILL", ended_at=time.time())


def is_unexplained(end: RunExit) -> bool:
    """Whether only Slurm knows why a run ended: a signal that it may have sent to everybody."""
    return end.stopped_by is not None or end.exit_code in (_KILLED, 128 + signal.SIGTERM)


def explained(end: RunExit, job: Job | None) -> RunExit:
    """How a run ended by a signal, with what Slurm knows about that."""
    if job is None:
        return end
    if job.state == "CANCELLED":
        return end._replace(reason=CANCELED, message=canceled(job).message)
    if end.stopped_by is None and job.state in _INFRASTRUCTURE:
        return end._replace(reason=LOST, message=_why(job))
    if end.stopped_by is None and job.state == "OUT_OF_MEMORY":
        return end._replace(last_lines=(*end.last_lines, _out_of_memory(job)))
    return end


def canceled(job: Job) -> RunExit:
    """Somebody has canceled the job: the trial is not wanted any more."""
    return RunExit(
        _KILLED, CANCELED, f"job {job.id} was canceled with scancel", ended_at=time.time()
    )


def without_record(job: Job, *, was_taken: bool, problem: str, folder: str) -> RunExit:
    """The end of a run whose job is over; `problem` is what its script left."""
    where = _where(job)
    now = time.time()
    if problem:
        return RunExit(1, NOT_STARTED, f"job {job.id}: {problem}.", ended_at=now)
    if job.state in _INFRASTRUCTURE:
        return RunExit(_KILLED, LOST, _why(job), ended_at=now)
    if job.state == "OUT_OF_MEMORY":
        words = _out_of_memory(job)
        return RunExit(
            _KILLED, SIGNALLED, words, signal="SIGKILL", ended_at=now, last_lines=(words,)
        )
    if was_taken:
        return RunExit(_KILLED, LOST, f"job {job.id}{where} ended without a record", ended_at=now)
    words = (
        f"job {job.id}{where} ended ({job.state}) before it could start the trial: is {folder} "
        "there, on a file system that this machine and all nodes share? Set cluster.shared_dir in "
        "platform.yaml to one that is."
    )
    return RunExit(1, NOT_STARTED, words, ended_at=now)


def _where(job: Job) -> str:
    return f" on {job.nodes}" if job.nodes else ""


def _why(job: Job) -> str:
    return f"{_INFRASTRUCTURE[job.state]} ({job.id}{_where(job)})"


def _out_of_memory(job: Job) -> str:
    return (
        f"job {job.id}{_where(job)} needed more memory than it asked for: see --mem, --mem-per-cpu "
        "or --mem-per-gpu in slurm.sbatch_args."
    )
