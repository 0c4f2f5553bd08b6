"""The embedded platform: experiments, their search, their runs. No torch, no server to install.

Clients (command line, Python client, dashboard) call `service/`; the supervisor does the work. The
pure parts are `search/`, `scheduler.py`, `states.py` and `lifecycle.py`: read those first. The
training library is not imported from here: the two share only journals and run folders.
"""
