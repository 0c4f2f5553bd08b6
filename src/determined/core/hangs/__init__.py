"""Processes that no longer make progress: what reports them, and what ends them.

`watchdog.py` writes hang reports, `stack_dump.py` prints stacks on SIGUSR1, `forced_exit.py` and
`keeper_watch.py` end a process that nobody could stop otherwise. Read `watchdog.py` first.
"""
