"""What people see of a run: reports, TensorBoard, progress, time profile, hints after an error.

Nothing here changes training. Read `pytorch/_reports.py` first.
"""
