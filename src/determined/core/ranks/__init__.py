"""How the ranks of a job find each other, exchange messages, and take steps together.

Tensors are exchanged by the training framework, not here. Read `group.py` first (collectives), then
`rendezvous.py` (how ranks connect) and `agreement.py` (an error on one is an error on all).
"""
