"""The dashboard: a separate server that reads the store, and the page that it serves.

`serve.py` starts it, `door.py` decides who may come in, `endpoints.py` is how the API in `api/`
declares what it takes and gives, `live.py` tells open pages what changed. Nothing here writes:
verbs go through `platform.service` like those of any other door. Read `app.py` first.
"""
