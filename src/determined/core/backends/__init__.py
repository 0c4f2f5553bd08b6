"""Where the contexts of core send reports and read instructions.

The contexts themselves are one level up. Read `backend.py` first (the interface, and local runs),
then `journal.py` (runs of the platform) and `tracked.py` (scripts that are only recorded).
"""
