"""Forks: runs that branch off from another run at a batch.

`request.py` is what a run is asked to branch off from, `base.py` finds the checkpoint that it
starts from, `rules.py` says how a changed hyperparameter takes effect. Read `fork.py` first.
"""
