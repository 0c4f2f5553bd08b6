"""How a script started manually becomes a trial: it requests ids and gets a trial's context."""

from __future__ import annotations

import dataclasses
import getpass
import logging
import os
import shutil
import time
import uuid as uuids
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from determined._contracts.home import make_private
from determined._info import ClusterInfo, RendezvousInfo, ResourcesInfo, TrialInfo
from determined.core import (
    Context,
    DistributedContext,
    DummyDistributedContext,
    DummySearcherContext,
    PreemptMode,
    TensorboardMode,
)
from determined.core._context import CheckpointStorage, build_context
from determined.core.backends.backend import Backend, LocalBackend
from determined.core.backends.detached import DetachedBackend
from determined.core.backends.run_log import RunLog
from determined.core.backends.tracking import command_line, program_name
from determined.core.ranks.agreement import Ranks
from determined.experimental._output import TeedOutput
from determined.journal import Control, InboxItem, Introduction, JournalWriter
from determined.storage import section_of

if TYPE_CHECKING:
    from determined.platform.service import Service

logger = logging.getLogger("determined.core")


@dataclasses.dataclass
class Config:
    """What the experiment of a script is; all of it may be left out.

    Attributes:
        name: by default `unmanaged-` and eight characters by chance.
        hparams: the hyperparameters of the trial.
        data: free-form, for `info.user_data`.
        description: in a sentence or two.
        labels: any number of words.
        workspace: where to put it; made if it does not exist.
        project: where to put it in the workspace; made if it does not exist.
        checkpoint_storage: a path, a URL or a section, as for `core.init`.
        searcher: the `searcher` section, of which `metric` and `smaller_is_better` count.
        external_experiment_id: a name of yours; the experiment that has it is used again.
        external_trial_id: a name of yours within that experiment; its trial is resumed.
    """

    name: str | None = None
    hparams: dict[str, Any] | None = None
    data: dict[str, Any] | None = None
    description: str | None = None
    labels: list[str] | None = None
    workspace: str | None = None
    project: str | None = None
    checkpoint_storage: str | dict[str, Any] | None = None
    searcher: dict[str, Any] | None = None
    external_experiment_id: str | None = None
    external_trial_id: str | None = None

    def over(self, other: Config | None) -> Config:
        """This one, with the values of the other where it has none."""
        mine = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        given = {name: value for name, value in mine.items() if value is not None}
        return self if other is None else dataclasses.replace(other, **given)


def open_detached(
    config: Config,
    distributed: DistributedContext | None,
    checkpoint_storage: CheckpointStorage | None,
    preempt_mode: PreemptMode,
    tensorboard_mode: TensorboardMode,
) -> Context:
    """Ask for ids, on the chief, and build the context of the trial on every rank."""
    distributed = distributed or DummyDistributedContext()
    request = _Request(config, checkpoint_storage)
    answer: dict[str, Any] = Ranks(distributed).on_first(request.send)
    storage = answer["config"]["checkpoint_storage"]
    if request.storage is not None and not _is_within(request.storage, storage):
        logger.warning(
            "The checkpoints of experiment %d are in %s: `checkpoint_storage` has no effect.",
            answer["experiment_id"],
            storage,
        )
    item = InboxItem(answer["item"])
    log = RunLog(item, with_times=distributed.size == 1)
    context = build_context(
        _info_of(answer, distributed),
        distributed,
        storage,
        preempt_mode,
        tensorboard_mode,
        None,
        lambda rank: request.backend(answer, log) if rank == 0 else LocalBackend(),
    )
    context.searcher = DummySearcherContext(distributed)
    output = TeedOutput(log, distributed.rank)
    context._close_also(output.close, log.close)
    return context


class _Request:
    """The chief's part: an item in the inbox, and the ids that belong to it."""

    def __init__(self, config: Config, storage: CheckpointStorage | None) -> None:
        self._config = config
        given = config.checkpoint_storage if storage is None else storage
        self.storage = None if given is None else section_of(given)
        self._item: InboxItem | None = None
        self._writer: JournalWriter | None = None

    def send(self) -> dict[str, Any]:
        """Ask the supervisor, which is started if need be."""
        from determined.platform.homes.home import Home
        from determined.platform.service import Service

        home = Home.find()
        make_private(home.path, parents=True)
        service = Service(home)
        arguments = self._arguments(service)
        item, writer = InboxItem.create(home.path)
        try:
            answer = service.ask("begin_unmanaged", {**arguments, "item": item.path.name})
        except BaseException:
            writer.close()
            shutil.rmtree(item.path, ignore_errors=True)
            raise
        finally:
            service.close()
        self._item, self._writer = item, writer
        return {**answer, "item": str(item.path)}

    def backend(self, answer: Mapping[str, Any], log: RunLog) -> Backend:
        """The backend of the run that was granted; its journal opens with who writes it."""
        assert self._item is not None
        assert self._writer is not None
        names = ("best_validation", "last_validation", "metadata")
        Control(**{name: answer[name] for name in names}).write(self._item.path)
        self._writer.append([self._introduction(answer)])
        metric = answer["config"]["searcher"]
        backend = DetachedBackend(
            self._item, self._writer, log, answer["run_id"], answer["begins_at"]
        )
        backend.set_best_tracking(metric["metric"], metric["smaller_is_better"])
        return backend

    def _arguments(self, service: Service) -> dict[str, Any]:
        from determined.platform.rules.unmanaged import METRIC, completed_config

        config = self._config
        searcher = {"name": "single", "metric": METRIC, **(config.searcher or {})}
        values: dict[str, Any] = {
            "name": config.name or f"unmanaged-{uuids.uuid4().hex[:8]}",
            "entrypoint": " ".join(command_line()),
            "searcher": searcher,
        }
        for name in ("data", "description", "workspace", "project"):
            if getattr(config, name) is not None:
                values[name] = getattr(config, name)
        if config.labels is not None:
            values["labels"] = sorted(config.labels)
        storage = self.storage or {
            "type": "directory",
            "container_path": str(service.home.checkpoints),
        }
        hparams = config.hparams or {}
        return {
            "config": completed_config(values, storage, hparams, int(time.time())),
            "hparams": hparams,
            "external_experiment_id": config.external_experiment_id,
            "external_trial_id": config.external_trial_id,
            "owner": getpass.getuser(),
            "host": os.uname().nodename,
            "pid": os.getpid(),
            "folder": str(Path.cwd()),
        }

    def _introduction(self, answer: Mapping[str, Any]) -> Introduction:
        assert self._item is not None
        return Introduction(
            name=program_name() or "python",
            command=command_line(),
            folder=str(Path.cwd()),
            owner=getpass.getuser(),
            host=os.uname().nodename,
            boot_id=self._item.boot_id,
            pid=os.getpid(),
            storage=answer["config"]["checkpoint_storage"],
            steps_completed=answer["begins_at"],
        )


def _info_of(answer: Mapping[str, Any], distributed: DistributedContext) -> ClusterInfo:
    trial = TrialInfo(
        trial_id=answer["trial_id"],
        experiment_id=answer["experiment_id"],
        trial_seed=answer["seed"],
        hparams=answer["hparams"],
        config=answer["config"],
        steps_completed=answer["steps_completed"],
        trial_run_id=answer["run_id"],
        debug=False,
        inter_node_network_interface=None,
    )
    return ClusterInfo(
        master_url="",
        cluster_id="",
        agent_id=os.uname().nodename,
        slot_ids=[],
        task_id=answer["task_id"],
        allocation_id=answer["allocation_id"],
        session_token="",
        task_type="TRIAL",
        latest_checkpoint=answer["latest_checkpoint"],
        trial_info=trial,
        rendezvous_info=RendezvousInfo(["127.0.0.1"], 0, [distributed.local_size]),
        resources_info=ResourcesInfo([]),
    )


def _is_within(given: Mapping[str, Any], section: Mapping[str, Any]) -> bool:
    return all(section.get(name) == value for name, value in given.items())
