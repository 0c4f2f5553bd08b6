"""The parent of one run's processes: starts the entrypoint, follows its log, leaves nothing behind.

Imports only the standard library and, of this package, `runs/folder.py`, `_os/` and `_contracts/`:
there is one keeper per run, so it must start fast and stay small. Read `_keeper.py` first.
"""
