"""One module per promise. A check returns what it found in words, or raises an error of `_result`.

A check is named after its function, which takes the device and a folder to work in.
"""
