"""Training batches of one rank, without end: opened at a position, and able to tell where they are.

A position is global: any rank's saved state opens any world size. Read `training_data.py` first,
then `map_style.py`, the usual kind; `opening.py` chooses among the kinds. Not here: which samples
make up a batch (`order/`) and how they are fetched (`fetch.py`).
"""
