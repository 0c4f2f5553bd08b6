"""`python -m determined.selftest`: whether what we promise holds on the devices of this machine.

`_plan.py` says what is checked where, `_run.py` runs each check in a process of its own
(`_child.py`), `_table.py` shows what came out. The checks are in `checks/`, one module per promise;
they train `_trial.py`.
"""
