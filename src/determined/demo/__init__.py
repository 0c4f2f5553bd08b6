"""`python -m determined.demo`: the product in a minute, with no download and no clone.

`__main__.py` tells the story: a training that is killed three times ends with the weights of an
undisturbed one, then a search looks for better hyperparameters. `files/` is what it works on: a
script, a search and images, copied to a folder of the user's, to read and to change.
"""
