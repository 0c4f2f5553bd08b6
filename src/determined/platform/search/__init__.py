"""Search methods: events in, actions out; no clock, no files, no global randomness.

Trials are run elsewhere (supervisor, launchers). Only a user's method (`custom_process`) and a
model (`model_process`) run in separate processes, which `child` starts.
Read `searcher.py` first, then `methods/bracket.py`.
"""
