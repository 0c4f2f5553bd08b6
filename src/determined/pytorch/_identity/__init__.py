"""Which run a `fit` belongs to: what makes two starts of a script the same run, and its name.

Not here: what a checkpoint of a run holds. Read `identity.py` first, the rule; `naming.py` applies
it to a context and keeps other processes out of the run.
"""
