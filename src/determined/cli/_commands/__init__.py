"""What commands are made of: groups, options, errors, the platform behind them.

What they print is in `_present`. Read `nouns.py` first.
"""
