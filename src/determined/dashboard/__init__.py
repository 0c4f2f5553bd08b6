"""The dashboard: a separate server that reads the store, and the page that it serves.

`serve.py` starts it, `access.py` controls access, the API in `api/` declares its parameters and
answers with `endpoints.py`, and `live.py` tells open pages what changed. Nothing here writes to
the store: actions go through `platform.service`, as for any other client. Read `app.py` first.
"""
