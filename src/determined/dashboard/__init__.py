"""The dashboard: a separate server that reads the store, and the page that it serves.

`server/` starts it and controls access, `api/` answers requests as `endpoints/` declares them, and
`live.py` tells open pages what changed. Nothing here writes to the store: actions go through
`platform.service`, as for any other client. Read `app.py` first.
"""
