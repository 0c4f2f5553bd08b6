"""Rebuild a store from what is left of the old one and from the folders of a home.

    folders.py   what stands in the folders of experiments and runs (only looks)
    records.py   from there to records of experiments, trials and runs
    reports.py   journals, read again
    rebuild.py   all of it, in an order that can be cut short anywhere

Nothing is deleted: the old store stays beside the new one.
"""
