"""Rebuild a store from what is left of the old one and from the folders of a home.

    runs/found_runs.py   what the folders of experiments and runs contain (read-only)
    records.py   turns that into records of experiments, trials and runs
    reports.py   journals, read again
    rebuild.py   all of it, in an order that can be interrupted anywhere

Nothing is deleted: the old store stays next to the new one.
"""
