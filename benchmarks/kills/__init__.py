"""The same training in four libraries, killed at the same batches: what is left of the result.

    python -m benchmarks.kills            prints the table of docs/comparison.md

`digits.py` is the net, the data and the noise that all of them share; the other files are the same
script for each library, as its documentation says to resume.
"""
