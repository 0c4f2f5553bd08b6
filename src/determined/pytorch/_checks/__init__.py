"""Validate what users pass in: an error names it, what was expected and what it got.

`arguments.py` checks single values, `trial.py` a whole trial before it trains.
"""
