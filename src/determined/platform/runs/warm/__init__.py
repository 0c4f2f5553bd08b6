"""Warm starts: programs start in a fork of a process that has their libraries loaded.

Importing torch and the library takes seconds, for every trial, restart and resume. A fork server
does it once, and then forks:

    supervisor --asks--> fork server (torch loaded, one thread) --forks--> keeper --forks--> trial

Code that never mentions torch gets a fork server that has only `determined.core` loaded.

The keeper is a child of the fork server but owns the run's lock, like one that was started cold;
the trial is a child of its keeper, which handles signals, exit status and leftover processes as
always. In the trial's process `fresh_process.py` resets whatever would be different in a new
interpreter, then the program runs at the bottom of the stack.

    program.py        may this command start warm, and if not, why (pure)
    interpreter.py    where the interpreter of a command is, and whether it is ours
    fresh_process.py  turns a fork into what a new interpreter would be
    ending.py         the exit of a program, without tearing down what it shares with the server
    server.py         the fork server: load, then fork    __main__.py  its bottom frame
    client.py         the supervisor's side               messages.py  the messages between the two
    ranks.py          torchrun and workers, below our launcher

A fork server is never required: whenever there is none, it cannot be used or it dies, programs
start cold. It ends with the supervisor, after being idle for a while, and when one of the files
that it was loaded from has changed. Read `program.py` first.
"""
