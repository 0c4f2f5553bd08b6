"""Ways to start, find, stop and collect runs.

No decisions about which run is next: that is `scheduler.py`. Read `protocol.py` first.
"""
