"""What a trial holds as `self.context`: wrapped models and optimizers, gradients, facts of the run.

Not here: what a batch or a checkpoint is made of. Read `context.py` first: it is the whole class;
the other modules are what it is made with.
"""
