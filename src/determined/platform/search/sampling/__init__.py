"""Which hyperparameters come next: random draws, and models that learn from results.

Read `proposals.py` first. When trials are created is up to `methods/`.
"""
