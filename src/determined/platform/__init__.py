"""The embedded platform: experiments, their search, their runs. No torch, no server to install.

Doors (command line, client, dashboard) call `service.py`; the supervisor does the work. The pure
parts are `search/`, `scheduler.py`, `states.py` and `lifecycle.py`: read those first.
"""
