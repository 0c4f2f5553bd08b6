"""Older forms of the original's API; their public names stay where users import them from.

Nothing new is built on them. Read `trial_context.py` first.
"""
