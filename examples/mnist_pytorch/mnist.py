"""Read MNIST from its original files, compressed or not."""

from __future__ import annotations

import gzip
import math
from pathlib import Path

import torch
from torch.utils.data import TensorDataset


def read_mnist(folder: Path, train: bool) -> TensorDataset:
    """Return images (1x28x28, float, 0 to 1) and labels of the training or the test set."""
    part = "train" if train else "t10k"
    images = _read_idx(folder, f"{part}-images-idx3-ubyte", dimensions=3)
    labels = _read_idx(folder, f"{part}-labels-idx1-ubyte", dimensions=1)
    if len(images) != len(labels):
        raise ValueError(f"{folder} has {len(images)} {part} images but {len(labels)} labels.")
    return TensorDataset(images.unsqueeze(1) / 255, labels.long())


def _read_idx(folder: Path, name: str, dimensions: int) -> torch.Tensor:
    """Read a file whose header is 0, 0, type, number of dimensions, and the dimensions."""
    packed, plain = folder / f"{name}.gz", folder / name
    if packed.exists():
        content = gzip.decompress(packed.read_bytes())
    elif plain.exists():
        content = plain.read_bytes()
    else:
        raise SystemExit(f"There is neither {name} nor {name}.gz in {folder}: see README.md.")
    unsigned_byte = 8
    if content[:4] != bytes([0, 0, unsigned_byte, dimensions]):
        raise ValueError(f"{name} in {folder} is no IDX file of {dimensions} dimensions of bytes.")
    end = 4 + 4 * dimensions
    sizes = [int.from_bytes(content[i : i + 4], "big") for i in range(4, end, 4)]
    if len(content) - end != math.prod(sizes):
        raise ValueError(f"{name} in {folder} is cut short or too long for its sizes {sizes}.")
    return torch.frombuffer(bytearray(content), dtype=torch.uint8, offset=end).reshape(sizes)
