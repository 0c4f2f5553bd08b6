"""Trials and faults made by a generator: what was interrupted ends like what was not, or says so.

`parts/` has what trials are made of, `recipe.py` a trial as a list of parts, `running.py` runs it
with faults, `comparing.py` says what differs, `generator.py` draws both. Read `recipe.py` first.
`python -m tests.exactness --cases 2000` is the long form.
"""
