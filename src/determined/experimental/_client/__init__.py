"""The classes of the Python client: cached records of the store, with the verbs of the platform.

`determined.experimental.client` is the way in. Everything is asked of `platform.service`, here is
neither SQL nor a decision. Read `determined.py` first, then `experiment.py`.
"""
