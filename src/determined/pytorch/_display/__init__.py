"""What people see of a run: progress, time profile, hints after an error.

Nothing here changes training. Read `pytorch/_reporter.py` first: it is the one that shows anything.
"""
