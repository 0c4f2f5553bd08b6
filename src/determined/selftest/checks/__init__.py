"""One module per promise. A check returns what it found in words, or raises an error of `_result`.

The name of a check is that of its function, which takes the device and a folder to work in.
"""
