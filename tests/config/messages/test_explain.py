"""Wrong configurations: all errors at once, each where it stands, in words that help."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from determined import config
from determined.errors import ConfigurationError, InvalidConfigurationException
from tests.config.wrong import AFTER_THE_SEARCHER, SEARCHERS, WHOLE_FILES
from tests.support.messages import documented

_ENTRYPOINT = "entrypoint: python3 train.py\n"
_SEARCHER = "searcher: {name: single, metric: loss}\n"
_STORAGE = {"type": "directory", "container_path": "/checkpoints"}


def errors(text: str | bytes, *overrides: str) -> list[str]:
    with pytest.raises(ConfigurationError) as caught:
        config.load(text, "c.yaml", overrides, config.Completion(checkpoint_storage=_STORAGE))
    found = [problem for problem in caught.value.problems if problem.severity == "error"]
    assert all(problem.render() for problem in found)
    return [str(problem).removeprefix("c.yaml:").strip() for problem in found]


@pytest.mark.parametrize(("text", "expected"), AFTER_THE_SEARCHER)
def test_wrong_key_is_told_with_its_place(text: str, expected: list[str]) -> None:
    assert errors(_ENTRYPOINT + _SEARCHER + text) == expected


@pytest.mark.parametrize(("text", "expected"), SEARCHERS)
def test_wrong_searcher_is_told_with_its_place(text: str, expected: list[str]) -> None:
    assert errors(_ENTRYPOINT + text) == expected


@pytest.mark.parametrize(("text", "expected"), WHOLE_FILES)
def test_wrong_file_is_told_with_its_place(text: str, expected: list[str]) -> None:
    found = errors(text)
    assert [line for line in found if line in expected] == expected


def test_all_errors_of_a_file_come_at_once_and_in_its_order() -> None:
    found = errors("nam: x\nresources: {slots_per_trial: two}\nsearcher: {name: rndom}\ndebug: on")
    places = [line.split(" ")[0] for line in found]
    assert places == ["1:1:", "2:30:", "3:18:", "4:8:", "entrypoint:"]


def test_caret_stands_under_the_place() -> None:
    text = f"{_ENTRYPOINT}searcher:\n  name: random\n  metric: loss\n  max_trials: ten\n"
    with pytest.raises(ConfigurationError) as caught:
        config.load(text, "c.yaml")
    problem = next(p for p in caught.value.problems if p.path == ("searcher", "max_trials"))
    assert problem.render().splitlines() == [
        "c.yaml:5:15: searcher.max_trials: expected an integer >= 1, got 'ten'",
        "    5 |   max_trials: ten",
        "      |               ^",
    ]


def test_problem_as_data_has_the_same_keys_always() -> None:
    for given in ("name: 5", {"name": 5}):
        with pytest.raises(ConfigurationError) as caught:
            config.load(given)
        for problem in caught.value.problems:
            keys = "severity source line column path message hint"
            assert list(problem.to_json()) == keys.split()


def test_error_survives_pickling_and_is_an_invalid_configuration() -> None:
    with pytest.raises(InvalidConfigurationException) as caught:
        config.load("name: 5")
    copy = pickle.loads(pickle.dumps(caught.value))
    assert str(copy) == str(caught.value)
    assert copy.problems == caught.value.problems  # type: ignore[attr-defined]


def test_dictionary_has_paths_but_no_lines() -> None:
    given = {"searcher": {"name": "random", "metric": "loss"}, "entrypoint": "x"}
    with pytest.raises(ConfigurationError) as caught:
        config.load(given, completion=config.Completion(checkpoint_storage=_STORAGE))
    (problem,) = caught.value.problems
    assert str(problem).startswith("configuration: searcher.max_trials: missing")


@pytest.mark.parametrize("value", [object(), {1, 2}, b"x", 3j, {None: 1}, {(1,): 2}])
def test_dictionary_with_objects_is_refused(value: object) -> None:
    with pytest.raises(ConfigurationError, match=r"data\.x: expected"):
        config.load({"data": {"x": value}})


def test_dictionary_that_contains_itself_is_refused() -> None:
    loop: dict[str, object] = {}
    loop["data"] = loop
    with pytest.raises(ConfigurationError, match="nested too deeply"):
        config.load(loop)


def test_alias_bomb_is_refused_before_it_is_expanded() -> None:
    lines = ["a: &a [x, x, x, x, x, x, x, x, x, x]"]
    for number in range(1, 12):
        before, name = chr(96 + number), chr(97 + number)
        lines.append(f"{name}: &{name} [{', '.join([f'*{before}'] * 10)}]")
    assert "100,000 values once aliases are expanded" in errors("\n".join(lines))[0]


def test_deep_nesting_is_refused_without_a_crash() -> None:
    for opening in ("[", "{a: ", "- "):
        assert "nested more than 64" in errors("data: \n  " + opening * 100_000)[0]


def test_large_file_is_refused() -> None:
    assert "at most 1,000,000 are read" in errors("# " + "x" * 1_000_001)[0]


def test_number_with_too_many_digits_is_told() -> None:
    assert "1:7: name: an integer with too many digits" in errors("name: " + "9" * 5000)


def test_bytes_that_are_no_text_are_told_with_their_place() -> None:
    assert errors(b"name: x\ndebug: \xff\n")[0].startswith("line 2, column 8 is not UTF-8")


def test_secret_is_never_repeated() -> None:
    text = (
        f"{_ENTRYPOINT}{_SEARCHER}checkpoint_storage: "
        "{type: s3, bukcet: b, access_key: hunter2, secret_key: 12345, nonsense: 1}\n"
        "environment: {registry_auth: {password: 9876}, nonsense: 1}\n"
        "data: {secrets: {token: t0ps3cret}}\n"
    )
    with pytest.raises(ConfigurationError) as caught:
        config.load(text, "c.yaml")
    shown = "\n".join(problem.render() for problem in caught.value.problems)
    assert "bukcet" in shown
    for secret in ("hunter2", "12345", "9876", "t0ps3cret"):
        assert secret not in shown


def test_missing_file_and_folder_are_told(tmp_path: Path) -> None:
    for path, reason in ((tmp_path / "no.yaml", "No such file"), (tmp_path, "directory")):
        with pytest.raises(ConfigurationError, match=reason):
            config.load_file(path)
    with pytest.raises(ConfigurationError, match="cannot be read"):
        config.load_file("nul\0byte.yaml")


@pytest.mark.parametrize(
    ("kind", "instead"),
    [
        ("float", "double"),
        ("uniform", "double"),
        ("loguniform", "log"),
        ("choice", "categorical"),
        ("randint", "int"),
    ],
)
def test_types_of_other_libraries_are_told_with_ours(kind: str, instead: str) -> None:
    entry = f"{{type: {kind}, minval: 0, maxval: 1}}"
    (error,) = errors(_ENTRYPOINT + _SEARCHER + f"hyperparameters: {{lr: {entry}}}\n")
    assert f"expected const, int, double, log, log_int or categorical, got '{kind}'" in error
    assert f"(write `type: {instead}`" in error
    documented(f"a hyperparameter of `type: {kind}`", error.partition(": ")[2])
