"""The examples that read MNIST and CIFAR-10 from the files in which these are published."""

from __future__ import annotations

import os
import pickle
import pickletools
import warnings
from pathlib import Path

import pytest
import torch
from sklearn.datasets import load_digits

from tests.examples.data_files import CIFAR10_NAMES, python2_pickle, write_cifar10, write_mnist
from tests.examples.running import load_example, percentages, run_example

pytestmark = pytest.mark.timeout(240)  # more than the deadlines of two runs


@pytest.mark.slow
def test_a_sequential_model_learns_packed_mnist(tmp_path: Path) -> None:
    write_mnist(tmp_path / "mnist", train=1200, test=400, packed=True)
    output = run_example("mnist_pytorch", "train.py", tmp_path / "mnist", "--epochs=4")
    assert "of 400 test images are right" in output
    assert percentages(output)[0] > 80


@pytest.mark.slow
def test_a_model_of_two_inputs_and_three_outputs_learns_plain_mnist(tmp_path: Path) -> None:
    write_mnist(tmp_path / "mnist", train=1200, test=400, packed=False)
    output = run_example("mnist_pytorch", "train_pairs.py", tmp_path / "mnist", "--epochs=4")
    left, right, larger, all_three = percentages(output)
    assert min(left, right) > 80
    assert larger > 60
    assert all_three <= min(left, right, larger)


@pytest.mark.parametrize("packed", [True, False])
def test_mnist_is_read_as_it_was_written(tmp_path: Path, packed: bool) -> None:
    write_mnist(tmp_path / "mnist", train=30, test=20, packed=packed)
    mnist = load_example("mnist_pytorch", "mnist")
    images, labels = mnist.read_mnist(tmp_path / "mnist", train=False)[:]
    assert images.shape == (20, 1, 28, 28)
    assert images.dtype == torch.float32
    assert 0.9 < float(images.max()) <= 1
    assert labels.tolist() == load_digits().target[30:50].tolist()


def test_a_file_of_mnist_that_is_cut_or_missing_is_named(tmp_path: Path) -> None:
    write_mnist(tmp_path / "mnist", train=30, test=20, packed=False)
    mnist = load_example("mnist_pytorch", "mnist")
    images = tmp_path / "mnist" / "train-images-idx3-ubyte"
    os.truncate(images, images.stat().st_size - 1)
    with pytest.raises(ValueError, match="train-images-idx3-ubyte .* cut short"):
        mnist.read_mnist(tmp_path / "mnist", train=True)
    images.unlink()
    with pytest.raises(SystemExit, match="neither train-images-idx3-ubyte nor"):
        mnist.read_mnist(tmp_path / "mnist", train=True)


@pytest.mark.slow
def test_a_convolutional_net_learns_cifar10(tmp_path: Path) -> None:
    write_cifar10(tmp_path / "cifar", images_per_batch=200)
    output = run_example(
        "cifar10_cnn_pytorch", "train.py", tmp_path / "cifar", "--batches=60", "--batch-size=32"
    )
    assert "of 200 test images are right" in output
    assert percentages(output)[0] > 70
    assert all(name in output for name in CIFAR10_NAMES)


def test_the_pickles_of_the_test_have_the_form_of_the_published_ones(tmp_path: Path) -> None:
    write_cifar10(tmp_path / "cifar", images_per_batch=3)
    written = (tmp_path / "cifar" / "data_batch_1").read_bytes()
    opcodes = {opcode.name for opcode, _, _ in pickletools.genops(written)}
    assert {"SHORT_BINSTRING", "BINSTRING"} <= opcodes
    assert not opcodes & {"BINUNICODE", "BINBYTES", "NEWFALSE", "STACK_GLOBAL"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some releases of numpy mind the form of its early days
        published_way = pickle.loads(written, encoding="bytes")
    cifar10 = load_example("cifar10_cnn_pytorch", "cifar10")
    ours = cifar10._read_batch(tmp_path / "cifar" / "data_batch_1")
    assert (ours.pop(b"data") == published_way.pop(b"data")).all()
    assert ours == published_way


def test_a_forged_batch_of_cifar10_runs_no_code(tmp_path: Path) -> None:
    class Forged:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return os.mkdir, (str(tmp_path / "broken_in"),)

    (tmp_path / "data_batch_1").write_bytes(python2_pickle({b"data": Forged()}))
    cifar10 = load_example("cifar10_cnn_pytorch", "cifar10")
    with pytest.raises(pickle.UnpicklingError, match="refused"):
        cifar10.read_cifar10(tmp_path, train=True)
    assert not (tmp_path / "broken_in").exists()
