"""The commands that clients may send.

`commands.py` lists them, and holds those on one experiment; the other modules are named by what
their commands do. Each runs within the transaction of a tick, and only decides: side effects follow
later. Read `commands.py` first.
"""
