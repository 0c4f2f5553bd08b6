"""The searches of live experiments: restored from the store, stepped, carried out.

    restoring.py  the search of an experiment, and the process that it asks, if any
    steps.py      passes events to a search, and carries out what it decides

How searches decide is in `platform/search/`. Those that take time run in
`background/slow_searches.py`. Read `steps.py` first.
"""
