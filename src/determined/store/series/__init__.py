"""Curves: points, sealed chunks with a pyramid of buckets, summaries; `points.py` first."""
