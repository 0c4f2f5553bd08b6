"""Branching off from another run at a batch: its base, the rules for changed values."""
