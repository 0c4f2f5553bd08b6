"""Which search finds better hyperparameters for the same training, and what a decision costs.

`python -m benchmarks.search` runs it: `tables.py` trains real learning curves once, `tasks.py` says
what is searched, `contenders.py` who searches, `race.py` lets them, `report.py` shows the outcome.
"""
