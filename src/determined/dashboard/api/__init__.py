"""The JSON API, one module per subject. Each declares its endpoints; `app.py` collects them.

A module reads through `View`; SQL is in `store`, drawing is done by the page. `experiments.py` is a
good one to read first.
"""
