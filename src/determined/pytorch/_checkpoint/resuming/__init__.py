"""Continuing from a checkpoint: what is restored, compared, and said."""
