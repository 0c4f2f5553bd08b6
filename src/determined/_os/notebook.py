"""Whether this is an interactive session, where exiting the process would do harm."""

from __future__ import annotations

import builtins


def in_ipython() -> bool:
    """Return whether this is IPython, as in notebooks: SystemExit would end the cell in noise.

    Having imported IPython does not count: plain scripts do so through other packages.
    """
    return hasattr(builtins, "__IPYTHON__")
