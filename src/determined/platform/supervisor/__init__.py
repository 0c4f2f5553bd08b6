"""The supervisor: the one process that writes the store, decides, and starts runs.

    _loop.py       one tick after another: commands and journals in, one transaction, then the acts
    _board.py      what it keeps in memory: experiments that are not over, runs that live
    _decisions.py  what a command, a report or the end of a run changes, within the transaction
    _search_steps.py what a search hears and decides, and how that is carried out
    _changes.py    one change at a time, in the store and on the board
    _commands.py   the verbs that doors may send
    _continuing.py the verb that lets a finished experiment go on
    _scheduling.py who runs next, from the board
    _limits.py     who has run longer than allowed
    _runs.py       acts on runs: prepare, start, tell, stop
    _checkpoints.py what a run left in the storage, and whether that can be used
    _creations.py  what doors prepared for experiments
    _unmanaged.py  watches the inbox: runs that the platform did not start
    _unmanaged_runs.py what their journals change, within the transaction
    _detached.py   the verb by which scripts get ids, and verbs that mean nothing to them
    _projects.py   the project that a configuration names
    _calls.py      acts on the user's commands and URLs when an experiment is over
    _blame.py      whose part of a tick failed
    presence.py    whether one is at work, how to start and wake it (for doors)
    _garbage.py    acts on checkpoints: find what nothing keeps
    _deleting.py   the verbs that delete
    _deletions.py  acts on files that are to go
    _moving.py     the verb that puts experiments into another project
    _lost_records.py whether the store is as new as the folders
    _searches.py   the search of an experiment, from the store, and who helps it to decide
    _thinking.py   acts on searches with a helper: they hear their events beside the loop

All that it does in the world follows from what is committed, and may be done again after a crash.
Read `_loop.py` first.
"""
