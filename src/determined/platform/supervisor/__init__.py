"""The supervisor: the one process that writes the store, decides, and starts runs.

    _loop.py       one tick after another: read commands and journals, one transaction, then act
    _board.py      what it holds in memory: unfinished experiments, live runs
    _decisions.py  what a command, a report or the end of a run changes, within the transaction
    _search_steps.py tells a search about events, and carries out what it decides
    _changes.py    one change at a time, in the store and on the board
    _commands.py   the commands that clients may send
    _continuing.py the command that continues a finished experiment
    _scheduling.py which trials run next, from the board
    _limits.py     which experiments and trials have run longer than allowed
    _runs.py       prepares, starts, notifies and stops runs
    _checkpoints.py what a run left in the storage, and whether that can be used
    _creations.py  what clients prepared for experiments
    _unmanaged.py  watches the inbox: runs that the platform did not start
    _unmanaged_runs.py what their journals change, within the transaction
    _detached.py   the command by which scripts get ids, and commands that do not apply to them
    _projects.py   the project that a configuration names
    _calls.py      runs the user's commands and posts to URLs when an experiment has ended
    _blame.py      which part of a tick failed
    presence.py    whether a supervisor is running, how to start and wake it (for clients)
    _garbage.py    finds checkpoints that no rule keeps
    _deleting.py   the commands that delete
    _deletions.py  removes files that are marked for deletion
    _moving.py     the command that moves experiments to another project
    _lost_records.py whether the store is as new as the folders
    _searches.py   restores the search of an experiment, and the process that it asks, if any
    _thinking.py   runs searches that need a process of their own, outside the loop

All side effects follow from what is committed, and may be repeated after a crash.
Read `_loop.py` first.
"""
