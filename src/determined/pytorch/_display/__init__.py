"""What people see of a run: reports, TensorBoard, progress, time profile, hints after an error.

Nothing here changes training. Read `reports.py` first.
"""
