"""A home on disk: its files by name, code snapshots and archives, disk usage.

Records are in `store/`, what runs write in `runs/`, import and rebuild in `maintenance/`. Read
`home.py` first.
"""
