"""The parent of one run's processes: starts the entrypoint, follows its log, leaves nothing behind.

Imports only the standard library and, of the platform, `run_folder` and `processes`: there is one
keeper per run, so it must start fast and stay small. Read `_keeper.py` first.
"""
