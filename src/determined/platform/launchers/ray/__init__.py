"""Runs on the nodes of a Ray cluster.

    connection.py  the way to the cluster
    cluster.py     which nodes live, an agent on each, reserved resources
    agent.py       on a node: starts keepers there, and hands out what their runs write
    launcher.py    the launcher: verbs become calls of agents, files come home in pieces
    order.py       what an agent is told to start, and what changes on the way to its node
    mirror.py      the files of a run at home, as far as they have come
    merged_log.py  one log of the logs of several nodes
    storage_probe.py  whether checkpoints can be saved from a node

Only `connection.py`, `cluster.py` and `launcher.py` import Ray, and only the supervisor imports
these. Agents run the local launcher, so a node is this machine once more. Read `launcher.py` first.
"""
