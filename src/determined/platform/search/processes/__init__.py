"""Methods and models that run in processes of their own, so that a crash stays contained.

`custom_process.py` and `model_process.py` are our side, `custom_child.py` and `model_child.py` run
in the process; `child.py` starts, asks and ends it. Read `child.py` first.
"""
