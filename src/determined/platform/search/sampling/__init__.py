"""Which hyperparameters come next: random draws, and models that learn from results."""
