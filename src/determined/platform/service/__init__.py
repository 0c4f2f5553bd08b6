"""Commands and queries: the API that every client (command line, Python, dashboard) uses.

A verb (a command) adds a row to the store's commands and wakes the supervisor, which is started if
there is none. A query reads the store, and waits for nobody.

    _supervised.py  the home, its store, and commands to its supervisor
    _lookups.py     one experiment, trial, checkpoint or project
    _creating.py    verbs that create or continue experiments
    _forking.py     verbs that fork trials
    _deleting.py    verbs that delete
    _service.py     `Service`: all of these, and the short verbs
"""

from determined.errors import NotFoundError, RefusedError
from determined.platform.service._deleting import check_glob
from determined.platform.service._service import Service

__all__ = ["NotFoundError", "RefusedError", "Service", "check_glob"]
