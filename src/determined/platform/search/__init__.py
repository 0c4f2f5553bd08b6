"""Search methods: events in, actions out; no clock, no files, no global randomness.

What runs trials lives elsewhere (supervisor, launchers); only `custom_process` starts a process.
Read `searcher.py` first, then `halving.py`.
"""
