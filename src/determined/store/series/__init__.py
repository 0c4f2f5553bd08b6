"""Curves: points, sealed chunks with a pyramid of buckets, summaries.

Which reports count is decided in `write/ingest.py`. Read `points.py` first, then `writer.py` and
`curves.py`, which write and read them.
"""
