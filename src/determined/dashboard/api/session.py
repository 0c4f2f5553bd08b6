"""This session: the home, its supervisor, its slots."""

from __future__ import annotations

import getpass

from typing_extensions import TypedDict

from determined._version import __version__
from determined.dashboard.api.verbs import VERBS
from determined.dashboard.endpoints.endpoints import Routes
from determined.dashboard.view import View
from determined.store import Workspace

routes = Routes("session")


class SupervisorJson(TypedDict):
    """Whether a supervisor is running."""

    alive: bool
    pid: int | None
    text: str


class SlotsJson(TypedDict):
    total: int
    used: int


class SessionJson(TypedDict):
    """What a page requests first."""

    csrf: str
    version: str
    home: str
    user: str
    supervisor: SupervisorJson
    slots: SlotsJson
    counts: dict[str, int]
    verbs: list[str]


@routes.get("/session")
def session(view: View) -> SessionJson:
    """This home, its supervisor and slots, and the CSRF value that actions must send."""
    counts = view.reader.tables.experiment_counts() if view.has_store else {}
    used = {n for run in view.reader.unfinished_runs() for n in run.slots} if view.has_store else ()
    return {
        "csrf": view.csrf,
        "version": __version__,
        "home": str(view.home.path),
        "user": getpass.getuser(),
        "supervisor": supervisor_json(view),
        "slots": {"total": len(view.machine().slots), "used": len(used)},
        "counts": counts,
        "verbs": list(VERBS),
    }


def supervisor_json(view: View) -> SupervisorJson:
    """The state of the supervisor, with a description in words."""
    facts = view.supervisor()
    if facts is None:
        text = "No supervisor is running, so nothing changes. One starts when needed."
        return {"alive": False, "pid": None, "text": text}
    slots = "1 slot" if facts.slots == 1 else f"{facts.slots} slots"
    text = f"The supervisor is running: process {facts.pid}, version {facts.version}, {slots}."
    return {"alive": True, "pid": facts.pid, "text": text}


class WorkspaceJson(TypedDict):
    id: int
    name: str
    owner: str
    archived: bool


class ProjectJson(TypedDict):
    id: int
    workspace_id: int
    workspace: str
    name: str
    description: str
    archived: bool


class WorkspacesJson(TypedDict):
    rows: list[WorkspaceJson]


class ProjectsJson(TypedDict):
    rows: list[ProjectJson]


@routes.get("/workspaces")
def workspaces(view: View) -> WorkspacesJson:
    """All workspaces."""
    found: list[Workspace] = view.reader.registry.workspaces() if view.has_store else []
    rows: list[WorkspaceJson] = [
        {"id": w.id, "name": w.name, "owner": w.owner, "archived": w.archived} for w in found
    ]
    return {"rows": rows}


@routes.get("/projects")
def projects(view: View) -> ProjectsJson:
    """All projects, with the names of their workspaces."""
    if not view.has_store:
        return {"rows": []}
    names = {workspace.id: workspace.name for workspace in view.reader.registry.workspaces()}
    rows: list[ProjectJson] = [
        {
            "id": project.id,
            "workspace_id": project.workspace_id,
            "workspace": names[project.workspace_id],
            "name": project.name,
            "description": project.description,
            "archived": project.archived,
        }
        for project in view.reader.registry.projects()
    ]
    return {"rows": rows}
