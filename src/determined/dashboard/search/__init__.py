"""How a search went: rungs, importance, pairs of hyperparameters."""
