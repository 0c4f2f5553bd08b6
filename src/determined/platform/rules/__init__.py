"""Pure rules: a value in, a value out, without files, clocks or global random state.

Who applies them is the supervisor; how searches decide is in `search/`. Read `states.py` first,
then `lifecycle.py` and `scheduler.py`.
"""
