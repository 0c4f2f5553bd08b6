"""Which samples make up which batch: a function of (seed, epoch, position), never of the past.

All ranks see one global sequence of batches without end and take every `size`-th. Read
`index_order.py` first: it knows each epoch's samples as one permutation and jumps anywhere;
`sampler_order.py` iterates any other sampler, `nested_samplers.py` has the samplers themselves. Not
here: how the samples are fetched.
"""
