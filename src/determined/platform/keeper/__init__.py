"""The parent of one run's processes: starts the entrypoint, follows its log, leaves nothing behind.

Only the standard library, and of this package only `run_folder` and `processes`: there is one
keeper per run, so it must start at once and stay small. Read `_keeper.py` first.
"""
