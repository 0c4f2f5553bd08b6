"""Other dashboards with the same data: a curve of 200,000 points and a table of 2,000 trials.

`data.py` is the data; `mlflow.py`, `optuna_dashboard.py` and `trackio.py` store it, each run by an
interpreter that has the package; `ours.py` makes a home of it; `compare.py` serves and measures
them all. Read that one first.
"""
