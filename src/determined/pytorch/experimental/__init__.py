"""Process a dataset in batches, for inference for example, over as many ranks as there are.

Write a `TorchBatchProcessor`, hand it to `torch_batch_process`. This interface may still change.
"""

from determined.pytorch.experimental._process import torch_batch_process
from determined.pytorch.experimental._processor import (
    TorchBatchProcessor,
    TorchBatchProcessorContext,
    get_default_device,
)

__all__ = [
    "TorchBatchProcessor",
    "TorchBatchProcessorContext",
    "get_default_device",
    "torch_batch_process",
]
