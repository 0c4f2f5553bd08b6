"""What clients ask: comparisons, outcomes, logs, the queue, downloads, verification. Read-only.

What changes something is in `platform.service`, SQL is in `store`. Read `outcome.py` first.
"""
