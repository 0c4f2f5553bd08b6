"""Searches in virtual time, for previews and benchmarks. Read `simulator.py` first."""
