"""What training costs, against a plain torch loop and against other libraries.

`python -m benchmarks` runs it: `suite.py` says what is compared, `turns.py` how processes take
turns, `contenders/` holds one script per library. Other modules measure single parts alone.
"""
