"""What runs are scheduled on: the slots of this machine, or the nodes of a cluster.

Which run gets which slots is decided in `rules/scheduler.py`. Read `slots.py` first.
"""
