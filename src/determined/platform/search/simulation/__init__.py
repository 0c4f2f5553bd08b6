"""Searches in virtual time, for previews and benchmarks."""
