"""What sets trials apart."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from determined.platform.queries.comparison import differing, flattened

_values = st.none() | st.booleans() | st.integers(0, 3) | st.text(max_size=2)
_names = st.text("abc", min_size=1, max_size=2)
_hparams = st.recursive(
    st.dictionaries(_names, _values, max_size=3),
    lambda inner: st.dictionaries(_names, inner | _values, max_size=3),
    max_leaves=8,
)


@given(st.lists(_hparams, max_size=4))
def test_what_does_not_differ_is_the_same_everywhere(trials: list[dict[str, Any]]) -> None:
    flat = [flattened(trial) for trial in trials]
    apart = differing(flat)
    assert apart == sorted(apart)
    for name in {name for values in flat for name in values} - set(apart):
        assert all(name in values for values in flat)
        assert len({repr(values[name]) for values in flat}) == 1
    for name in apart:
        assert len({repr(values.get(name, "missing")) for values in flat}) > 1


def test_nested_names_get_dots_and_a_missing_value_differs() -> None:
    one = flattened({"net": {"width": 8, "layers": [1, 2]}, "lr": 0.1, "empty": {}})
    assert one == {"net.width": 8, "net.layers": [1, 2], "lr": 0.1, "empty": {}}
    assert differing([one, {**one, "lr": 0.2}]) == ["lr"]
    assert differing([one, {k: v for k, v in one.items() if k != "net.width"}]) == ["net.width"]
    assert differing([{"flag": True}, {"flag": 1}]) == ["flag"]
    assert differing([one]) == differing([]) == []
