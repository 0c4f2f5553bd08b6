"""Logs as numbered lines: pages of a trial's log, many runs merged by time, searches.

How a log and its index are written and read is in `platform.queries`. Read `pages.py` first.
"""
