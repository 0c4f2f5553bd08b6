"""Metrics of batches, and how many become one: over batches, over ranks, by users' own reducers.

Not here: where metrics are shown or sent (`pytorch/_reporter.py`). Read `batch_metrics.py` first.
"""
