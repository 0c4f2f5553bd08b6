"""TensorBoard over stored trials, in a process of its own behind access control.

Event files of training are written by `tensorboard/`. Read `server.py` first.
"""
