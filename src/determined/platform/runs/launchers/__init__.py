"""Ways to start, find, stop and collect runs.

`rules/scheduler.py` decides which run is next, not these. Read `protocol.py` first.
"""
