"""Runs that the platform did not start: their folders in the inbox, and what they report.

    inbox.py  watches the items of the inbox, between ticks
    runs.py   what their journals change, within the transaction

How a script writes there is in `journal/`. Read `inbox.py` first.
"""
