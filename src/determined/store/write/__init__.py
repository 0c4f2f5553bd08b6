"""The single writer of a home and all that it may do in a transaction; `transaction.py` first."""
