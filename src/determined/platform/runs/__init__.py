"""A run on disk and its processes, from the folder to the exit status.

    folder.py       every file of a run, and who writes it
    entrypoint.py   from an experiment's `entrypoint` to a command
    environment.py  what an experiment was created with; variables.py: what a run gets of it
    placement.py    where a run of a cluster runs
    found_runs.py   what the folders of a home say about its runs
    keeper/         the parent of a run's processes
    launchers/      start, find, stop and collect runs: on this machine, on a Ray cluster
    warm/           starts in a fork of a process that has torch loaded

Which runs start is decided in `rules/scheduler.py` and by the supervisor. Read `folder.py` first.
"""
