"""Write small datasets in the formats in which the large ones are published."""

from __future__ import annotations

import gzip
import io
import pickle
import struct
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_digits

CIFAR10_NAMES = [
    *("airplane", "automobile", "bird", "cat", "deer"),
    *("dog", "frog", "horse", "ship", "truck"),
]


def write_mnist(folder: Path, train: int, test: int, packed: bool) -> None:
    """Write scikit-learn's digits, enlarged to 28x28, as the four IDX files of MNIST."""
    data = load_digits()
    enlarged = np.kron(data.images * 15.9, np.ones((1, 3, 3)))
    images = np.pad(enlarged, ((0, 0), (2, 2), (2, 2))).astype(np.uint8)
    labels = data.target.astype(np.uint8)
    parts = {"train": slice(0, train), "t10k": slice(train, train + test)}
    folder.mkdir(parents=True)
    for part, chosen in parts.items():
        for name, array in (("images-idx3", images[chosen]), ("labels-idx1", labels[chosen])):
            content = _idx(array)
            path = folder / f"{part}-{name}-ubyte"
            if packed:
                path.with_name(path.name + ".gz").write_bytes(gzip.compress(content, 1))
            else:
                path.write_bytes(content)


def _idx(array: np.ndarray) -> bytes:
    header = struct.pack(">BBBB", 0, 0, 8, array.ndim)
    return header + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


def write_cifar10(folder: Path, images_per_batch: int) -> None:
    """Write images whose class shows in the brightness of their channels and halves."""
    random = np.random.default_rng(0)
    folder.mkdir(parents=True)
    names = [*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"]
    means = random.integers(40, 215, size=(10, 3, 2))
    for name in names:
        labels = random.integers(0, 10, size=images_per_batch)
        images = np.repeat(means[labels], 16, axis=2)[:, :, :, np.newaxis].repeat(32, axis=3)
        images = np.clip(images + random.normal(0, 30, images.shape), 0, 255).astype(np.uint8)
        batch = {
            b"batch_label": name.replace("_", " ").encode(),
            b"labels": labels.tolist(),
            b"data": images.reshape(images_per_batch, 3 * 32 * 32),
            b"filenames": [f"{label}_{i}.png".encode() for i, label in enumerate(labels)],
        }
        (folder / name).write_bytes(python2_pickle(batch))
    meta = {b"num_vis": 3072, b"label_names": [name.encode() for name in CIFAR10_NAMES]}
    (folder / "batches.meta").write_bytes(python2_pickle(meta))


def python2_pickle(value: Any) -> bytes:
    """Return the pickle that Python 2 and the numpy of 2009 would make of it."""
    stream = io.BytesIO()
    pickler: Any = pickle._Pickler(stream, protocol=2)
    pickler.dispatch = {**pickler.dispatch, bytes: _save_string, str: _save_text, bool: _save_flag}
    pickler.dump(value)
    return stream.getvalue().replace(b"cnumpy._core.multiarray\n", b"cnumpy.core.multiarray\n")


def _save_string(pickler: Any, value: bytes) -> None:
    if len(value) < 256:
        pickler.write(pickle.SHORT_BINSTRING + bytes([len(value)]) + value)
    else:
        pickler.write(pickle.BINSTRING + struct.pack("<i", len(value)) + value)
    pickler.memoize(value)


def _save_text(pickler: Any, value: str) -> None:
    _save_string(pickler, value.encode())


def _save_flag(pickler: Any, value: bool) -> None:
    pickler.write(pickle.BININT1 + bytes([value]))  # numpy's flags were numbers then
