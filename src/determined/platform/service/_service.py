"""All commands and queries in one class."""

from __future__ import annotations

from typing import Any

from determined.errors import RefusedError
from determined.platform.service._deleting import DeletingVerbs
from determined.platform.service._forking import ForkingVerbs


class Service(ForkingVerbs, DeletingVerbs):
    """One home, as clients see it. May be shared by threads."""

    def _before_creation(self) -> None:
        from determined.platform.homes.disk_limit import beyond_limit, find_limit, used_bytes

        limit = find_limit(self.home)
        if limit is None or used_bytes(self.home) < limit:
            return
        if self.has_store:
            self.collect_garbage_of_all()
        if (used := used_bytes(self.home)) >= limit:
            raise RefusedError(f"Nothing was created. {beyond_limit(self.home, used, limit)}")

    def pause(self, experiment_id: int) -> None:
        self.experiment(experiment_id)
        self.ask("pause", {"experiment_id": experiment_id})

    def activate(self, experiment_id: int) -> None:
        self.experiment(experiment_id)
        self.ask("activate", {"experiment_id": experiment_id})

    def cancel(self, experiment_id: int) -> None:
        self.experiment(experiment_id)
        self.ask("cancel", {"experiment_id": experiment_id})

    def kill(self, experiment_id: int) -> None:
        self.experiment(experiment_id)
        self.ask("kill", {"experiment_id": experiment_id})

    def kill_trial(self, trial_id: int) -> None:
        self.trial(trial_id)
        self.ask("kill_trial", {"trial_id": trial_id})

    def archive(self, experiment_id: int, archived: bool = True) -> None:
        self.experiment(experiment_id)
        self.ask("archive", {"experiment_id": experiment_id, "archived": archived})

    def change(self, experiment_id: int, **changes: Any) -> None:
        """Set the name, description, labels, notes, priority, max_slots or weight."""
        slots = self.experiment(experiment_id).config["resources"]["slots_per_trial"]
        limit = changes.get("max_slots")
        if limit is not None and limit < slots:
            raise RefusedError(
                f"max_slots: expected at least slots_per_trial ({slots}), got {limit}: no trial "
                "could ever start."
            )
        self.ask("set", {"experiment_id": experiment_id, "changes": changes})

    def move(self, experiment_id: int, workspace: str, project: str) -> None:
        """Put an experiment into another project."""
        self.experiment(experiment_id)
        arguments = {"experiment_id": experiment_id, "workspace": workspace, "project": project}
        self.ask("move", arguments)

    def label(self, experiment_id: int, label: str, *, remove: bool = False) -> None:
        """Give an experiment a label, or take it away; either may be so already."""
        self.experiment(experiment_id)
        arguments = {"experiment_id": experiment_id, "label": label, "remove": remove}
        self.ask("label", arguments)
