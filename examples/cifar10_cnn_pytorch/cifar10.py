"""Read CIFAR-10 from its pickled batches without running code that a file may contain."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import TensorDataset


def read_cifar10(folder: Path, train: bool) -> TensorDataset:
    """Return images (3x32x32 bytes) and labels of all training batches, or of the test batch."""
    files = sorted(folder.glob("data_batch_[1-5]" if train else "test_batch"))
    if not files:
        raise SystemExit(f"There are no CIFAR-10 python batches in {folder}: see README.md.")
    batches = [_read_batch(file) for file in files]
    pixels = np.concatenate([batch[b"data"] for batch in batches]).reshape(-1, 3, 32, 32)
    labels = [label for batch in batches for label in batch[b"labels"]]
    return TensorDataset(torch.from_numpy(pixels), torch.tensor(labels))


def read_names(folder: Path) -> list[str]:
    """Return the names of the ten classes."""
    return [name.decode() for name in _read_batch(folder / "batches.meta")[b"label_names"]]


def _read_batch(file: Path) -> dict[bytes, Any]:
    with file.open("rb") as stream:  # written by Python 2, whose strings are bytes
        return _ArraysOnly(stream, encoding="bytes").load()


class _ArraysOnly(pickle.Unpickler):
    """Allows only the classes and functions that a numpy array needs."""

    allowed = {
        ("numpy", "ndarray"): np.ndarray,
        # Drop the flags: they are numbers in these files, which some numpy releases reject.
        ("numpy", "dtype"): lambda name, align, copy: np.dtype(name),
        ("numpy.core.multiarray", "_reconstruct"): np.empty(0).__reduce__()[0],
    }

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in self.allowed:
            raise pickle.UnpicklingError(
                f"A CIFAR-10 batch does not need {module}.{name}: refused."
            )
        return self.allowed[module, name]
