"""Work that takes longer than a tick may: it runs in threads, and the loop records the results.

    worker.py         the protocol that the loop knows them by
    garbage.py        finds checkpoints that no policy keeps
    deletions.py      deletes files of checkpoints and experiments
    calls.py          runs the user's commands when experiments end
    disk.py           compares what the home takes with its limit
    slow_searches.py  searches that ask a model or a user's method

Runs are started and watched by `runs.py` of the supervisor. Read `worker.py` first.
"""
