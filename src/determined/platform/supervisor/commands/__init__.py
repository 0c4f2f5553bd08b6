"""The commands that clients may send; `commands.py` lists them."""
