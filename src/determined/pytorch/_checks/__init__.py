"""What users hand in, checked at the door: an error names it, what was expected and what came.

`arguments.py` checks single values, `trial.py` a whole trial before it trains.
"""
