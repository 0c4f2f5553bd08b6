"""`det mcp`: the platform for coding assistants, as a server of the Model Context Protocol.

A client of `platform.service` and `platform.queries` like the command line: it holds no state, so
it may die at any moment. It needs the package `mcp`, which only `server.py` imports.

    server.py         the server over standard input and output: read it first
    experiments.py    tools: create, check, list, describe, wait, pause, activate, kill, compare
    trials.py         tools: describe and explain trials, metrics, logs, checkpoints, forks
    deleting.py       tools that exist with `--allow-delete` only
    answers.py        small JSON: what an answer leaves out, rounds and shortens
    pages.py          the pages of the documentation, also from an installed wheel
"""
