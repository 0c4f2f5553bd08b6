"""Warm starts: programs start in a fork of a process that has their libraries loaded.

Importing torch and the library takes seconds, for every trial, restart and resume. A helper does it
once, and then forks:

    supervisor --asks--> helper (torch loaded, one thread) --forks--> keeper --forks--> trial

Code that never mentions torch gets a helper that has only `determined.core` loaded.

The keeper is a child of the helper but owns the run's lock, like one that was started cold; the
trial is a child of its keeper, which handles signals, exit status and leftover processes as always.
In the trial's process `fresh_process.py` resets whatever would be different in a new interpreter,
then the program runs at the bottom of the stack.

    program.py        may this command start warm, and if not, why (pure)
    fresh_process.py  turns a fork into what a new interpreter would be
    ending.py         the exit of a program, without tearing down what it shares with the helper
    helper.py         the helper: load, then fork      __main__.py  its bottom frame
    helpers.py        the supervisor's side            messages.py  the messages between the two
    ranks.py          torchrun and workers, below our launcher

A helper is never required: whenever there is none, it cannot be used or it dies, programs start
cold. It ends with the supervisor, after being idle for a while, and when one of the files that it
was loaded from has changed. Read `program.py` first.
"""
