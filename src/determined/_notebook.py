"""Whether a person sits at an interactive session, where leaving the process does harm."""

from __future__ import annotations

import builtins


def in_ipython() -> bool:
    """Return whether this is IPython, as in notebooks: SystemExit would end the cell in noise.

    Having imported IPython does not count: plain scripts do so through other packages.
    """
    return hasattr(builtins, "__IPYTHON__")
