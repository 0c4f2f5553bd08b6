"""Checksums of records."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tensorboard.compat.tensorflow_stub.pywrap_tensorflow import crc32c as reference_crc

from determined.tensorboard._checksum import crc32c


@given(st.binary(max_size=300), st.integers(0, 40_000))
def test_the_checksum_is_that_of_tensorboard(data: bytes, times: int) -> None:
    data = (data * (times // max(len(data), 1) + 1))[:40_000]
    assert crc32c(data) == int(reference_crc(data))
