"""Hashes of tensors: read back as written, bounded, and refused where they are something else."""

from __future__ import annotations

import base64
import zlib
from pathlib import Path

import pytest

from determined._contracts.tensor_hashes import (
    TensorHashes,
    bounded,
    read_tensor_hashes,
    tensor_hashes,
)

_ONE, _TWO = "0123456789abcdef", "f" * 16


def test_file_and_record_give_back_what_was_written(tmp_path: Path) -> None:
    hashes = TensorHashes({"models/0/a": _ONE, "random": _TWO}, {"seed": 1, "first": [0, _ONE]})
    (tmp_path / "hashes.json").write_bytes(hashes.to_json())
    assert read_tensor_hashes(tmp_path) == hashes
    assert tensor_hashes(tmp_path) == {"models/0/a": _ONE, "random": _TWO}
    assert TensorHashes.from_record(hashes.to_record()) == hashes
    assert len(hashes.to_record()) < 250


def test_a_checkpoint_of_an_earlier_release_has_none(tmp_path: Path) -> None:
    assert read_tensor_hashes(tmp_path) is None
    assert tensor_hashes(tmp_path) == {}


def test_the_digest_depends_on_paths_and_hashes_but_not_on_their_order() -> None:
    digest = TensorHashes({"a": _ONE, "b": _TWO}).digest
    assert digest == TensorHashes({"b": _TWO, "a": _ONE}).digest
    assert digest != TensorHashes({"a": _TWO, "b": _ONE}).digest
    assert digest != TensorHashes({"a": _ONE, "c": _TWO}).digest


def test_a_record_of_very_many_tensors_is_bounded_and_still_tells_them_apart() -> None:
    many = {
        f"optimizers/0/state/{i}/{name}": f"{i:016x}"
        for i in range(15_000)
        for name in ("exp_avg", "exp_avg_sq", "step")
    } | {f"models/0/blocks.{i}.weight": f"{i:016x}" for i in range(15_000)}
    record = TensorHashes.from_record(TensorHashes(many).to_record())
    assert len(record.tensors) <= 20_000
    other = bounded({**many, "models/0/blocks.7.weight": _TWO})
    different = {path for path in other if other[path] != record.tensors[path]}
    assert different == {"models/0/blocks.7"}
    assert len(bounded({str(i): _ONE for i in range(9)}, 3)) == 1


@pytest.mark.parametrize(
    "text",
    [
        "",
        "?",
        base64.b64encode(b"x").decode(),
        base64.b64encode(zlib.compress(b"[]")).decode(),
        base64.b64encode(zlib.compress(b'{"tensors": {"a": "b"}}')).decode(),
        base64.b64encode(zlib.compress(bytes(65 << 20))).decode(),
    ],
)
def test_what_is_no_record_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="."):
        TensorHashes.from_record(text)
