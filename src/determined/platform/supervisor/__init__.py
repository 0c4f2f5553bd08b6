"""The supervisor: the one process that writes the store, decides, and starts runs.

    loop.py             one tick after another: commands and journals, one transaction, then act
    live_state.py       what it holds in memory: unfinished experiments, live runs
    journals.py         what live runs have reported since the last tick
    decisions.py        what a command, a report or the end of a run changes, in the transaction
    changes.py          one change at a time, in the store and in the live state
    searches/           restores searches, tells them about events, carries out what they decide
    scheduling.py       which trials run next, from the live state
    limits.py           which experiments and trials have run longer than allowed
    runs.py             prepares, starts, notifies and stops runs
    forks.py            how forks of trials start, and train part by part
    checkpoints.py      what a run left in the storage, and whether that can be used
    unmanaged/          the inbox: runs that the platform did not start
    commands/           the commands that clients may send
    background/         work outside the loop: deletions, calls, slow searches, disk
    fault_isolation.py  which part of a tick failed
    presence.py         whether a supervisor is running, how to start and wake it (for clients)

All side effects follow from what is committed, and may be repeated after a crash.
Read `loop.py` first.
"""
