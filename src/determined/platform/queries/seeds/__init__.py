"""Runs of the same configuration under several seeds: found, summed up, compared."""
