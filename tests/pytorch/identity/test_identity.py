"""Which arguments tell runs apart, and what runs are called."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from determined.pytorch._identity.identity import (
    DISPLAYS,
    LAUNCH,
    LENGTHS,
    WITHOUT_VALUE,
    Identity,
    differences,
    distinguishing_arguments,
    file_name,
    identity_in_0_2,
    identity_of_program,
    run_id_before_0_2,
)


class Net:
    pass


@pytest.mark.parametrize(
    ("arguments", "kept"),
    [
        ("0.1 1", "0.1 1"),
        ("--epochs 30 --lr 0.1", "--lr 0.1"),
        ("--lr 0.1 --max-epochs=30", "--lr 0.1"),
        ("-epochs 3", ""),
        ("epochs=30 lr=1", "lr=1"),
        ("--resume --lr 0.1", "--lr 0.1"),
        ("--resume=latest 0.1", "0.1"),
        ("--log-every 4 --local-rank=0", ""),
        ("--train-steps", ""),
        ("--verbose", ""),
        ("--length 64 --max_length=64 --max-time 3", "--length 64 --max_length=64 --max-time 3"),
        ("--rank 8 --num-workers 4 --steps 5", "--rank 8 --num-workers 4 --steps 5"),
        ("--eval-every 5 -v --profile=small", "--eval-every 5 -v --profile=small"),
        ("epochs 3", "epochs 3"),
        ("--warmup-steps 10", "--warmup-steps 10"),
    ],
)
def test_lengths_and_displays_do_not_count(arguments: str, kept: str) -> None:
    assert distinguishing_arguments(arguments.split()) == kept.split()


def test_the_docs_show_the_table_of_what_does_not_count() -> None:
    page = (Path(__file__).parents[3] / "docs" / "checkpoints.md").read_text()
    table = page.partition("| options that do not count | value |")[2].partition("\n\n")[0]
    rows = [re.findall(r"`(\w+)`", row) for row in table.splitlines()[2:]]
    assert [set(row) for row in rows] == [
        set(LENGTHS),
        set(DISPLAYS),
        set(LAUNCH),
        set(WITHOUT_VALUE),
    ]


def test_hyperparameters_always_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["train.py"])
    names = {identity_of_program(1, {"length": n, "epochs": 3}).name for n in (64, 128)}
    assert len(names | {identity_of_program(1, {"length": 64, "epochs": 5}).name}) == 3


def test_runs_differ_by_seed_arguments_hyperparameters_script_and_class() -> None:
    base = Identity("/a/train.py", ("0.1",), 1, {"lr": 1})
    others = [
        Identity("/b/train.py", ("0.1",), 1, {"lr": 1}),
        Identity("/a/train.py", ("0.2",), 1, {"lr": 1}),
        Identity("/a/train.py", ("0.1",), 2, {"lr": 1}),
        Identity("/a/train.py", ("0.1",), 1, {"lr": 2}),
    ]
    names = {identity.run_id(Net) for identity in [base, *others]}
    assert len(names) == 5
    assert base.run_id(Net) != base.run_id(Identity)
    assert base.run_id(Net).startswith("train-0.1-seed-1-")
    assert base.run_id(Net) == Identity("/a/train.py", ("0.1",), 1, {"lr": 1}).run_id(Net)


def test_hyperparameters_are_compared_by_value_not_by_order_or_address() -> None:
    one = Identity("t.py", hparams={"a": 1, "b": object()})
    two = Identity("t.py", hparams={"a": 1, "b": object()})
    assert one.name == two.name
    assert Identity("t.py", hparams={"a": 1, "b": 2}).run_id(Net).startswith("t-a-1-b-2-")
    swapped = (Identity("t.py", hparams=h) for h in ({"a": 1, "b": 2}, {"b": 2, "a": 1}))
    assert len({identity._digest() for identity in swapped}) == 1


def test_differences_are_said_in_words() -> None:
    mine = Identity("t.py", ("0.1",), 1, {"lr": 1}).facts(Net)
    other = Identity("t.py", ("0.2", "x"), None, {"lr": 2}).facts(Net)
    assert differences(mine, other) == [
        "arguments 0.2 x",
        "seed None",
        'hyperparameters {"lr": 2}',
    ]


def test_names_of_files_are_safe_and_distinct() -> None:
    assert file_name("train-0.1-ab") == "train-0.1-ab"
    odd = ["../up", "a/b", "a b", "ä", "x" * 300, "", "\udcff", "."]
    names = [file_name(name) for name in odd]
    assert len(set(names)) == len(names)
    assert all(name and "/" not in name and not name.startswith(".") for name in names)


def test_the_former_name_is_that_of_earlier_releases() -> None:
    assert run_id_before_0_2(Identity("/t.py"), None, Net) == "0307db5e02677280"


def test_the_name_of_release_0_2_left_more_out(monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = ["--lr", "1", "--length", "64", "--steps", "5", "-v", "--workers=3"]
    monkeypatch.setattr(sys, "argv", ["train.py", *arguments])
    monkeypatch.setattr(sys.modules["__main__"], "__file__", "/t/train.py", raising=False)
    now = identity_of_program(3, {"length": 5, "width": 2})
    assert now.arguments == tuple(arguments)
    assert identity_in_0_2(now) == Identity("/t/train.py", ("--lr", "1"), 3, {"width": 2})
