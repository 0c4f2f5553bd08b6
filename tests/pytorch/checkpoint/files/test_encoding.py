"""Whatever a state holds is written so that torch's restricted reader reads it, and comes back."""

from __future__ import annotations

import argparse
import collections
import dataclasses
import datetime
import decimal
import enum
import functools
import io
import math
import pathlib
import random
import types
import uuid
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from torch import nn

from determined.errors import InvalidCheckpointException
from determined.pytorch._checkpoint.files.decoding import NotTrustedError, from_plain
from determined.pytorch._checkpoint.files.encoding import TAG, Living, living_in, to_plain
from determined.pytorch._checkpoint.files.reading import make_objects, read_tensors
from determined.pytorch._checkpoint.files.trust import Trust
from tests.support.quantized import Quantized
from tests.support.states import assert_same, states

OWN = Trust(own_code=Path(__file__).parents[4])


class Kind(enum.Flag):
    A = 1
    B = 2


class AttrDict(dict[str, Any]):
    def __getattr__(self, name: str) -> Any:
        return self[name]


@dataclasses.dataclass(frozen=True, slots=True)
class Slotted:
    value: Any


class Picky:
    """Says itself what is saved of it."""

    def __init__(self) -> None:
        self.value, self.function = 1, lambda: None

    def __getstate__(self) -> Any:
        return {"value": self.value}

    def __setstate__(self, state: Any) -> None:
        self.value = state["value"] + 0


class MyTensor(torch.Tensor):
    pass


def written(state: Any) -> Any:
    """Write a state, and read it as somebody does who has only torch."""
    file = io.BytesIO()
    torch.save(to_plain(state), file)
    file.seek(0)
    return read_tensors(file)


def back(state: Any, trust: Trust = OWN) -> Any:
    return from_plain(written(state), trust, lambda: living_in(state))


@settings(deadline=None, max_examples=100)
@given(state=states)
def test_a_state_comes_back_as_it_was(state: Any) -> None:
    assert_same(state, back(state), {})


def test_ordinary_states_are_written_as_they_are(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    optimizer = torch.optim.Adam(model.parameters())
    scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, [2, 2])
    model(torch.ones(3, 2)).sum().backward()
    optimizer.step()
    state = [model.state_dict(), optimizer.state_dict(), scheduler.state_dict()]
    torch.save(to_plain(state), tmp_path / "file")
    found = torch.load(tmp_path / "file", weights_only=True)
    assert_same(state, found, {})
    assert found[0]._metadata == state[0]._metadata  # type: ignore[attr-defined]  # of a state_dict
    assert TAG not in str(found)


@pytest.mark.parametrize(
    "value",
    [
        Kind.A | Kind.B,
        AttrDict(a=AttrDict(b=[1])),
        Slotted([1]),
        pathlib.Path("a/b"),
        pathlib.PureWindowsPath("c:/d"),
        datetime.datetime(2020, 1, 2, tzinfo=datetime.timezone.utc),
        datetime.timedelta(days=1),
        decimal.Decimal("1.10"),
        uuid.UUID(int=5),
        1 << 5000,
        -(1 << 2040),
        argparse.Namespace(lr=0.1),
        types.SimpleNamespace(lr=0.1),
        range(3),
        slice(1, None),
        ...,
        torch.channels_last,
        torch.float16,
        torch.Size([2]),
        np.dtype("f4"),
        np.float32,
        int,
        AttrDict,
        {TAG: "dict", "class": "os:system"},
        {Kind.A: 1, (1, Kind.B): 2, frozenset({1}): 3, 1.5: 4, b"x": 5, True: 6, None: 7},
        {(1, 2), "a", frozenset({3})},
        collections.OrderedDict([(Kind.A, 1), ("b", 2)]),
        bytearray(b"x"),
        1j,
        math.inf,
        "\ud800",
    ],
    ids=lambda value: type(value).__name__,
)
def test_values_of_every_kind_come_back(value: Any) -> None:
    found = back({"x": [value]})["x"][0]
    assert found == value
    assert type(found) is type(value)


def test_arrays_of_times_and_objects_come_back() -> None:
    times = np.array(["2020-01-01", "NaT"], dtype="M8[s]")
    objects = np.array([[1, "a"], [None, Kind.A]], dtype=object)
    found = back([times, objects, times[0], np.timedelta64(3, "D")])
    assert np.array_equal(found[0], times, equal_nan=True)
    assert found[1].tolist() == objects.tolist()
    assert (found[2], found[3]) == (times[0], np.timedelta64(3, "D"))


def test_generators_continue() -> None:
    state = [
        random.Random(1),
        np.random.default_rng(2),
        np.random.Generator(np.random.Philox(3)),
        np.random.RandomState(4),
        torch.Generator().manual_seed(5),
    ]

    def draw(generators: Any) -> list[Any]:
        drawn = [generator.random() for generator in generators[:3]]
        return [*drawn, generators[3].rand(), torch.rand((), generator=generators[4]).item()]

    draw(state)
    found = back(state)
    assert draw(found) == draw(state)


def test_a_class_with_a_state_of_its_own_is_made_from_it() -> None:
    found = back(Picky())
    assert found.value == 1
    assert not hasattr(found, "function")


def test_modules_come_back_with_their_weights() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.TransformerEncoderLayer(4, 2)).eval()
    found = back(model, Trust())
    assert not found.training
    for name, weight in model.state_dict().items():
        assert torch.equal(found.state_dict()[name], weight)


def test_tensor_subclasses_come_back() -> None:
    plain: Any = torch.arange(2.0).as_subclass(MyTensor)
    plain.note = "n"
    tensor = Quantized.of(torch.tensor([1.0, -2.0]))
    found: Any = back([plain, tensor, tensor])
    assert type(found[0]) is MyTensor
    assert (vars(found[0]), found[0].tolist()) == ({"note": "n"}, [0, 1])
    assert type(found[1]) is Quantized
    assert found[1].dequantize().tolist() == [1.0, -2.0]
    assert found[1] is found[2]


def test_what_is_shared_stays_shared_and_what_holds_itself_does() -> None:
    shared = AttrDict(n=1)
    holder: Any = [shared, shared]
    holder.append(AttrDict(me=holder))
    found = back(holder)
    assert found[0] is found[1]
    assert found[2].me is found


# What the program has.


def some_function() -> int:
    return 1


def test_functions_are_those_of_the_program() -> None:
    inner = AttrDict(f=lambda: 3)
    state = [some_function, math.cos, inner, functools.partial(some_function), inner.keys]
    found = back(state)
    assert found[:2] == [some_function, math.cos]
    assert found[2].f is inner.f
    assert found[3]() == 1
    with pytest.raises(NotTrustedError) as raised:
        from_plain(written(state), OWN, Living)
    assert raised.value.missing[0].endswith("test_encoding:some_function")


def test_a_scheduler_inside_of_a_state_is_given_its_own() -> None:
    def make(steps: int) -> Any:
        optimizer = torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=1.0)
        after = torch.optim.lr_scheduler.MultiStepLR(optimizer, [2, 5])
        for _ in range(steps):
            optimizer.step()
            after.step()
        return {"after": after, "optimizer": optimizer}

    saved, new = make(3), make(0)
    found = from_plain(written(saved), OWN, lambda: living_in(new))
    assert found["after"] is new["after"]
    assert found["optimizer"] is new["optimizer"]
    assert new["after"].last_epoch == 3
    assert new["after"].milestones == collections.Counter([2, 5])
    assert new["optimizer"].param_groups[0]["lr"] == pytest.approx(0.1)


def test_a_class_inside_of_a_function_is_that_of_the_program() -> None:
    class Local(dict[str, Any]):
        pass

    assert type(back(Local(a=1))) is Local
    with pytest.raises(NotTrustedError, match="Local"):
        back(Local(a=1), Trust())


# What is not made.


@pytest.mark.parametrize(
    "value",
    [
        {TAG: "made", "class": "os:system", "arguments": ("true",)},
        {TAG: "made", "class": "builtins:eval", "arguments": ("1",)},
        {TAG: "made", "class": "builtins:bytearray", "arguments": (1 << 40,)},
        {TAG: "made", "class": "torch:Tensor", "arguments": (1 << 40,)},
        {TAG: "class", "class": "subprocess:Popen"},
        {TAG: "function", "class": "os:system"},
        {TAG: "dict", "class": "collections:Counter", "entries": [1]},
        {TAG: "list", "class": "pathlib:PosixPath", "entries": []},
        {TAG: "object", "class": "subprocess:Popen"},
        {TAG: "object", "class": "collections:OrderedDict"},
        {TAG: "generator", "of": "__builtins__", "state": {}},
        {TAG: "numpy", "code": "O", "data": np.zeros(1, np.int64)},
        {TAG: "numpy objects", "shape": (1 << 40,), "entries": []},
        {TAG: "tensor", "class": "torch:Tensor", "parts": {}},
        {TAG: "constant", "name": "os"},
        {TAG: "unknown"},
        {TAG: ["unhashable"]},
        {TAG: "class"},
    ],
    ids=lambda value: str(value[TAG]),
)
def test_made_up_files_make_nothing(value: dict[str, Any], tmp_path: Path) -> None:
    full = {"is_new": False, "keywords": {}, "state": None, "entries": None, "items": None}
    if value[TAG] == "made":
        value = {**full, **value}
    with pytest.raises(InvalidCheckpointException):
        make_objects({"x": [value]}, tmp_path / "file", OWN)


def test_a_re_export_is_not_the_class(tmp_path: Path) -> None:
    name = f"{__name__}:Quantized"  # imported into this module
    with pytest.raises(InvalidCheckpointException, match="test_encoding:Quantized"):
        make_objects({TAG: "object", "class": name}, tmp_path / "file", OWN)
