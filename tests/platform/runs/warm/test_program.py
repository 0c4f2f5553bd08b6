"""Which commands may start warm, and why others may not."""

from __future__ import annotations

import pytest

from determined.platform.runs.warm.program import (
    Cold,
    Program,
    find_program,
    from_message,
    import_environment,
    obstacle,
    shadowed,
    to_message,
)


@pytest.mark.parametrize(
    ("argv", "target", "is_module", "arguments"),
    [
        (("python3", "train.py"), "train.py", False, ()),
        (("/env/bin/python3.11", "train.py", "-u", "-m"), "train.py", False, ("-u", "-m")),
        (("python", "-u", "-m", "pkg.train", "--lr", "1"), "pkg.train", True, ("--lr", "1")),
        (("sh", "-c", "python3 train.py 'a b' --x=1"), "train.py", False, ("a b", "--x=1")),
    ],
)
def test_python_programs_are_found(
    argv: tuple[str, ...], target: str, is_module: bool, arguments: tuple[str, ...]
) -> None:
    program = find_program(argv)
    assert isinstance(program, Program)
    assert (program.target, program.is_module, program.arguments) == (target, is_module, arguments)
    assert program.through_shell == (argv[0] == "sh")
    assert from_message(to_message(program)) == program


@pytest.mark.parametrize(
    ("argv", "reason"),
    [
        (("sh", "-c", "cd x && python3 train.py"), "its entrypoint needs a shell"),
        (("sh", "-c", "python3 train.py --lr $LR"), "its entrypoint needs a shell"),
        (("sh", "-c", "python3 'train.py"), "its entrypoint needs a shell"),
        (("sh", "-c", "LR=1 python3 train.py"), "its entrypoint is not a Python program"),
        (("bash", "train.sh"), "its entrypoint is not a Python program"),
        (("sh", "-c", ""), "its entrypoint is not a Python program"),
        (("python3", "-O", "train.py"), "its entrypoint gives Python options"),
        (("python3", "-c", "print(1)"), "its entrypoint gives Python options"),
        (("python3",), "its entrypoint gives Python options"),
        (("python3", "-m"), "its entrypoint gives Python options"),
    ],
)
def test_other_commands_start_cold_for_a_reason(argv: tuple[str, ...], reason: str) -> None:
    assert find_program(argv) == Cold(reason)


def test_obstacles_are_named_one_at_a_time() -> None:
    program = find_program(("python3", "train.py"))
    unbuffered = find_program(("python3", "-u", "train.py"))
    assert isinstance(program, Program)
    assert isinstance(unbuffered, Program)
    assert obstacle(program, {}) is None
    assert obstacle(program, {"PYTHONPATH": "/a:/b"}) is None
    assert obstacle(program, {"PYTHONPATH": "/a:src"}) == Cold("PYTHONPATH names a relative folder")
    assert obstacle(unbuffered, {"PYTHONUNBUFFERED": "1"}) is None
    assert obstacle(unbuffered, {}) == Cold("its entrypoint gives Python options")
    assert obstacle(program, {}, has_startup_hook=True) == Cold("a startup-hook.sh comes first")
    assert obstacle(program, {}, is_own_interpreter=False) == Cold(
        "it uses a different interpreter than the supervisor"
    )
    assert obstacle(program, {}, is_wanted=False, has_startup_hook=True) == Cold(
        "environment.warm_start is false", lasts=False
    )


def test_only_variables_that_are_read_late_may_differ() -> None:
    late = {"DET_TRIAL_ID": "1", "RANK": "0", "CUDA_VISIBLE_DEVICES": "1", "PWD": "/", "TERM": "x"}
    early = {"OMP_NUM_THREADS": "2", "PYTHONHASHSEED": "0", "LD_PRELOAD": "x", "UNKNOWN": "1"}
    assert import_environment({**late, **early}) == early


def test_a_module_with_the_name_of_a_loaded_one_is_an_obstacle() -> None:
    assert shadowed(["train", "model"], ["torch", "random"]) is None
    assert shadowed(["train", "random"], ["torch", "random"]) == Cold(
        "its own module random has the same name as one that is already loaded"
    )
