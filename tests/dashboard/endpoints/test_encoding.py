"""How answers are written: JSON without NaN, compressed where it pays."""

from __future__ import annotations

import gzip
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from determined._contracts.json_numbers import json_safe
from determined.dashboard.endpoints.encoding import dump, takes_gzip
from tests.dashboard.served import Served


def test_json_is_compressed_where_it_pays(shown: Served) -> None:
    assert shown.client.get("/api/experiments").headers["content-encoding"] == "gzip"
    assert "content-encoding" not in shown.client.get("/api/workspaces").headers


@given(
    st.recursive(
        st.none() | st.floats() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_json_names_what_is_no_number(data: Any) -> None:
    import json

    assert json.loads(dump(data), parse_constant=pytest.fail) == json_safe(data)


@pytest.mark.parametrize(
    ("header", "takes"),
    [
        ("gzip", True),
        ("br, gzip;q=0.5", True),
        ("*", True),
        ("", False),
        ("gzip;q=0", False),
        ("br", False),
    ],
)
def test_compression_is_used_if_it_is_taken(header: str, takes: bool) -> None:
    assert takes_gzip(header) is takes
    assert gzip.decompress(gzip.compress(b"a")) == b"a"
