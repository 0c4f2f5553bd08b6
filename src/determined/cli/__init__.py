"""The `det` command: one file per noun, each imported only when it is used.

`_nouns` lists them; `_group` finds them; `_errors` turns what goes wrong into exit codes; `_tables`
prints. Nothing here but `click` is imported before a command runs, so that `det` starts at once.
"""

from determined.cli._main import main

__all__ = ["main"]
