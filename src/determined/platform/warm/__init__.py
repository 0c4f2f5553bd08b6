"""Warm starts: programs begin in a copy of a process that has their libraries loaded.

Importing torch and the library takes seconds, in every trial, restart and resumption. A helper does
it once, and then forks:

    supervisor --asks--> helper (torch loaded, one thread) --forks--> keeper --forks--> trial

Code that never mentions torch has a helper without it, which has only `determined.core` loaded.

The keeper is a child of the helper but owns the run's lock, as one that was started cold; the
trial is a child of its keeper, so that signals, exit status and leftovers are the keeper's as
always. In the trial's process `newborn.py` sets right whatever a new interpreter would have
differently, then the program runs at the bottom of the stack.

    program.py   may this command start warm, and if not, why (pure)
    newborn.py   from a fork to what a new interpreter would be
    ending.py    the end of a program, without tearing down what it shares with the helper
    helper.py    the helper: load, then fork      __main__.py  its bottom frame
    helpers.py   the supervisor's side            messages.py  what they say to each other
    ranks.py     torchrun and workers, below our launcher
    terminal.py  the same for a script in a terminal: `det run`

A helper holds nothing that is needed: whenever there is none, it is of no use or it dies, programs
start cold. It ends with the supervisor, when nobody has asked it for a while, and when one of the
files that it was loaded from has changed. Read `program.py` first.
"""
