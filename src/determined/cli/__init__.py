"""The `det` command: one file per noun, each imported only when it is used.

`_commands/` is what commands are made of: `nouns.py` lists the nouns, `group.py` finds their verbs,
`errors.py` turns what goes wrong into exit codes. `_present/` is what they print. What they do is
in `platform.service`. Nothing but `click` is imported before a command runs, so that `det` starts
at once. Read `_commands/nouns.py` first.
"""

from determined.cli._main import main

__all__ = ["main"]
