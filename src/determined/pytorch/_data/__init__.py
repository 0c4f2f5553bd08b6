"""Batches: which samples they hold, how they are fetched, and the position in the training data.

Not here: what training or validation does with them. Read `order/` first: the order of samples is a
function of seed, epoch and position. `training/` has the batches of a rank, `batches.py` what users
import.
"""

from determined.pytorch._data.batches import (
    DataLoader,
    TorchData,
    _Data,
    _dataset_repro_warning,
    adapt_batch_sampler,
    data_length,
    to_device,
)

__all__ = [
    "DataLoader",
    "TorchData",
    "_Data",
    "_dataset_repro_warning",
    "adapt_batch_sampler",
    "data_length",
    "to_device",
]
