"""Small things about the machine: files, syncing, processes, terminals, notebooks.

Nothing here knows of experiments or trials; one file per subject, in any order.
"""
