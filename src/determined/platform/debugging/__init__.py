"""Find out what is wrong with a trial: run it in a terminal, try one batch, pack a report.

All of it uses the real parts of the platform; nothing here records anything. Read `debug_run.py`
first.
"""
