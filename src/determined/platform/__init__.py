"""The embedded platform: what runs experiments on this machine or a cluster, without a server.

No training code and no torch. Empty on purpose: every process of the platform passes through here
when it starts. Read `run_folder.py` first, then `keeper/`.
"""
