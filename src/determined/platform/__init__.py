"""The embedded platform: experiments, trials and runs without a server. Imports no torch.

The training library is not imported from here: the two meet in journals and run folders.
"""
