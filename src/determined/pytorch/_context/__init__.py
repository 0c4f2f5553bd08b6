"""What a trial holds as `self.context`: wrapped models and optimizers, gradients, facts of the run.

Not here: what a batch or a checkpoint is made of. Read `context.py` first; its two bases,
`run_facts.py` and `wrapping.py`, do not know each other.
"""
