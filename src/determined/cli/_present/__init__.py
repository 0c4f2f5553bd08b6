"""What commands print: tables, results, descriptions, logs, JSON.

Nothing here changes anything. Read `tables.py` first.
"""
