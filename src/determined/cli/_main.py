"""The entry of the command `det`."""

from __future__ import annotations

import sys
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> None:
    """Run `det` with the arguments of the process, or with those given; ends the process."""
    from determined.cli._commands.errors import exit_code_of
    from determined.cli._commands.nouns import det

    sys.exit(exit_code_of(det, sys.argv[1:] if arguments is None else list(arguments)))
