"""Commands and queries: the API that every client (command line, Python, dashboard) uses.

A verb (a command) adds a row to the store's commands and wakes the supervisor, which is started if
there is none. A query reads the store, and waits for nobody.

    _service.py          `Service`: read it first
    supervised_home.py   the store, and commands to the supervisor, which it starts
    creation_checks.py   what is checked before an experiment is created
    search_checks.py     whether a search can begin from a configuration
    forking.py           forks of trials
    model_registry.py, workspaces.py, checkpoint_metadata.py   verbs and queries of these subjects
    completion.py        what a submitted configuration leaves out

How logs, results and queues are read is in `platform.queries`.
"""

from determined.errors import NotFoundError, RefusedError
from determined.platform.service._service import Service, check_glob

__all__ = ["NotFoundError", "RefusedError", "Service", "check_glob"]
