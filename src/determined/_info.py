"""What this process knows about where it runs; nothing without a platform."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_REFERENCE_DIRECTORY = "/run/determined/info"

ELSEWHERE_FILE = "checkpoint_elsewhere.json"
"""Tells of a warm start from another storage; absent where there is none."""

FORK_FILE = "fork.json"
"""Tells a run what its trial branches off from; absent where it is no fork."""

TEST_MODE_VARIABLE = "DET_TEST_MODE"
"""Set to 1 where training is only to be tried: `Trainer.fit` then stops after one batch."""


class TrialInfo:
    """The trial that this process trains."""

    def __init__(
        self,
        trial_id: int,
        experiment_id: int,
        trial_seed: int,
        hparams: dict[str, Any],
        config: dict[str, Any],
        steps_completed: int,
        trial_run_id: int,
        debug: bool,
        inter_node_network_interface: str | None = None,
    ) -> None:
        self.trial_id = trial_id
        self.experiment_id = experiment_id
        self.trial_seed = trial_seed
        self.hparams = hparams
        self._config = config
        self._steps_completed = steps_completed
        self._trial_run_id = trial_run_id
        self._debug = debug
        self._inter_node_network_interface = inter_node_network_interface

    @classmethod
    def _from_env(cls) -> TrialInfo:
        config = json.loads(_required("DET_EXPERIMENT_CONFIG"))
        return cls(
            trial_id=int(_required("DET_TRIAL_ID")),
            experiment_id=int(_required("DET_EXPERIMENT_ID")),
            trial_seed=int(_required("DET_TRIAL_SEED")),
            hparams=json.loads(_required("DET_HPARAMS")),
            config=config,
            steps_completed=int(_required("DET_STEPS_COMPLETED")),
            trial_run_id=int(_required("DET_TRIAL_RUN_ID")),
            debug=bool(config.get("debug", False)),
            inter_node_network_interface=os.environ.get("DET_INTER_NODE_NETWORK_INTERFACE"),
        )


@dataclass(frozen=True)
class RendezvousInfo:
    """Where the other processes of this trial are; lists are ordered by container rank."""

    container_addrs: list[str]
    container_rank: int
    container_slot_counts: list[int]


@dataclass(frozen=True)
class ResourcesInfo:
    """The devices assigned to this process."""

    gpu_uuids: list[str]


class ClusterInfo:
    """The task that the platform started and that this process belongs to."""

    def __init__(
        self,
        master_url: str,
        cluster_id: str,
        agent_id: str,
        slot_ids: list[int],
        task_id: str,
        allocation_id: str,
        session_token: str,
        task_type: str,
        master_cert_name: str | None = None,
        master_cert_file: str | None = None,
        latest_checkpoint: str | None = None,
        trial_info: TrialInfo | None = None,
        rendezvous_info: RendezvousInfo | None = None,
        resources_info: ResourcesInfo | None = None,
        checkpoint_key: str | None = None,
    ) -> None:
        self.master_url = master_url
        self.cluster_id = cluster_id
        self.agent_id = agent_id
        self.slot_ids = slot_ids
        self.task_id = task_id
        self.allocation_id = allocation_id
        self.session_token = session_token
        self.task_type = task_type
        self.master_cert_name = master_cert_name
        self.master_cert_file = master_cert_file
        self._latest_checkpoint = latest_checkpoint
        self._trial_info = trial_info
        self._rendezvous_info = rendezvous_info
        self._resources_info = resources_info
        self._checkpoint_key = checkpoint_key

    @property
    def latest_checkpoint(self) -> str | None:
        """The checkpoint to continue from; always None if the task is not a trial."""
        return self._latest_checkpoint if self.task_type == "TRIAL" else None

    @property
    def trial(self) -> TrialInfo:
        """The trial; RuntimeError if the task is not a trial."""
        if self.task_type != "TRIAL" or self._trial_info is None:
            raise RuntimeError(
                f"`.trial` exists only for a task of type TRIAL; this one is {self.task_type}."
            )
        return self._trial_info

    @property
    def user_data(self) -> dict[str, Any]:
        """The free-form `data` section of the experiment configuration."""
        if self.task_type != "TRIAL":
            return {}
        return self.trial._config.get("data") or {}

    @property
    def container_addrs(self) -> list[str]:
        """Addresses of the machines of this trial, in order of their rank."""
        rendezvous = self._trial_rendezvous
        return ["127.0.0.1"] if rendezvous is None else rendezvous.container_addrs

    @property
    def container_slot_counts(self) -> list[int]:
        """Slots on each of these machines."""
        rendezvous = self._trial_rendezvous
        return [len(self.slot_ids)] if rendezvous is None else rendezvous.container_slot_counts

    @property
    def container_rank(self) -> int:
        """The rank of this machine among them."""
        rendezvous = self._trial_rendezvous
        return 0 if rendezvous is None else rendezvous.container_rank

    @property
    def gpu_uuids(self) -> list[str]:
        """GPUs that this task may use."""
        return [] if self._resources_info is None else self._resources_info.gpu_uuids

    @property
    def _trial_rendezvous(self) -> RendezvousInfo | None:
        if self.task_type != "TRIAL":
            return None
        if self._rendezvous_info is None:
            raise RuntimeError("This trial has no rendezvous.json, so its addresses are unknown.")
        return self._rendezvous_info

    @classmethod
    def _from_env(cls) -> ClusterInfo:
        task_type = _required("DET_TASK_TYPE")
        return cls(
            master_url=_required("DET_MASTER"),
            cluster_id=_required("DET_CLUSTER_ID"),
            agent_id=_required("DET_AGENT_ID"),
            slot_ids=json.loads(_required("DET_SLOT_IDS")),
            task_id=_required("DET_TASK_ID"),
            allocation_id=_required("DET_ALLOCATION_ID"),
            session_token=_required("DET_SESSION_TOKEN"),
            task_type=task_type,
            master_cert_name=os.environ.get("DET_MASTER_CERT_NAME"),
            master_cert_file=os.environ.get("DET_MASTER_CERT_FILE"),
            latest_checkpoint=os.environ.get("DET_LATEST_CHECKPOINT"),
            trial_info=TrialInfo._from_env() if task_type == "TRIAL" else None,
        )

    @classmethod
    def _from_directory(cls, directory: Path) -> ClusterInfo | None:
        cluster = _read(directory / "cluster.json")
        if cluster is None:
            return None
        trial = _read(directory / "trial.json")
        rendezvous = _read(directory / "rendezvous.json")
        resources = _read(directory / "resources.json")
        return cls(
            **cluster,
            trial_info=None if trial is None else TrialInfo(**trial),
            rendezvous_info=None if rendezvous is None else RendezvousInfo(**rendezvous),
            resources_info=None if resources is None else ResourcesInfo(**resources),
        )


_found: dict[str, ClusterInfo] = {}


def trial_of(info: ClusterInfo | None) -> TrialInfo | None:
    """The trial that a task trains; None if it is not a trial or there is no task."""
    return info.trial if info is not None and info.task_type == "TRIAL" else None


def get_cluster_info() -> ClusterInfo | None:
    """Return the platform's information about this process, or None if no platform started it.

    It is read from the directory named by `DET_INFO_DIR`, else from the place that containers use.
    A result is cached, its absence is not: the files may appear later.
    """
    for directory in (os.environ.get("DET_INFO_DIR"), _REFERENCE_DIRECTORY):
        if not directory:
            continue
        if directory not in _found:
            info = ClusterInfo._from_directory(Path(directory))
            if info is None:
                continue
            _found[directory] = info
        return _found[directory]
    return None


def checkpoint_elsewhere() -> tuple[str, dict[str, Any]] | None:
    """Return the checkpoint that a trial starts from, and its storage, if that is not its own."""
    directory = os.environ.get("DET_INFO_DIR")
    content = _read(Path(directory) / ELSEWHERE_FILE) if directory else None
    return None if content is None else (content["uuid"], content["storage"])


def fork_of_trial() -> dict[str, Any] | None:
    """Return where the trial branches off from another and what it changes; None if it does not."""
    directory = os.environ.get("DET_INFO_DIR")
    return _read(Path(directory) / FORK_FILE) if directory else None


def job_secret() -> str | None:
    """Return what only the ranks of this job know: DET_COMM_SECRET, or one of the allocation."""
    secret = os.environ.get("DET_COMM_SECRET")
    info = None if secret else get_cluster_info()
    if info is None:
        return secret or None
    # The session's token is known to this allocation's machines and to nobody else.
    key, text = info.session_token.encode(), info.allocation_id.encode()
    return hmac.new(key, text, hashlib.sha256).hexdigest()


def _required(variable: str) -> str:
    value = os.environ.get(variable)
    if value is None:
        raise RuntimeError(f"The environment variable {variable} is not set; the platform sets it.")
    return value


def _read(path: Path) -> dict[str, Any] | None:
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    try:
        content = json.loads(text)
    except json.JSONDecodeError as error:
        raise RuntimeError(f"{path} is not JSON: {error}.") from error
    if not isinstance(content, dict):
        raise RuntimeError(f"{path} must contain a JSON object, got {type(content).__name__}.")
    return content
