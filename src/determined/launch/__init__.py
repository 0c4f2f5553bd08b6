"""Start a training script as one process per slot.

`torch_distributed.py` is the command: it runs torchrun and reports its end. `torchrun.py` gives the
processes of one machine a rendezvous that no other machine can reach. `wrap_rank.py` runs one
worker and tags its output. The training library itself is not imported here.
"""
