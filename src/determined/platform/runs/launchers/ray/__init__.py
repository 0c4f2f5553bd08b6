"""Runs on the nodes of a Ray cluster.

    connection.py  the connection to the cluster
    cluster.py     the live nodes, an agent on each, reserved resources
    agent.py       on a node: starts keepers there, and returns what their runs write
    launcher.py    the launcher: calls agents, and copies files home in pieces
    order.py       what an agent has to start, and what changes on the way to its node

Only `connection.py`, `cluster.py` and `launcher.py` import Ray, and only the supervisor imports
these. Agents run the local launcher on their node. Read `launcher.py` first.
"""
