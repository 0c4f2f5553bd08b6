"""What pages show of a search: positions of trials, rungs, importance, pairs of hyperparameters.

The methods themselves are in `platform.search`; here nothing is decided. Read `rungs.py` first.
"""
