"""The single writer of a home, and everything that it may do in a transaction.

What to do is decided by the supervisor. Read `transaction.py` first, then `ingest.py` (records of
journals become rows).
"""
