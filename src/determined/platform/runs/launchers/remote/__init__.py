"""What launchers of other machines share: how the files of a run come home.

    mirror.py         the files of a run at home, as far as they are copied
    merged_log.py     one log of the logs of several nodes
    storage_probe.py  whether checkpoints can be saved from a node

Nothing here contacts a cluster. Read `mirror.py` first.
"""
