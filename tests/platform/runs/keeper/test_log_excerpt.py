"""The traceback that a failure is blamed on, among all that a log ends with."""

from __future__ import annotations

from pathlib import Path

from determined.platform.runs.folder import CONFIGURATION_MARK
from determined.platform.runs.keeper.log_excerpt import find_traceback, last_lines, read_end


def traceback(message: str, prefix: str = "") -> str:
    lines = [
        "Traceback (most recent call last):",
        '  File "x.py", line 1, in f',
        "    g()",
        message,
    ]
    return "".join(f"{prefix}{line}\n" for line in lines)


def test_a_log_without_a_traceback_has_none() -> None:
    assert find_traceback("all fine\n") is None


def test_a_process_dies_of_its_last_traceback() -> None:
    text = traceback("OSError: handled") + "going on\n" + traceback("ValueError: fatal")
    found = find_traceback(text)
    assert found is not None
    assert found.text.endswith("ValueError: fatal")
    assert "handled" not in found.text


def test_chained_tracebacks_belong_together() -> None:
    reason = "\nDuring handling of the above exception, another exception occurred:\n\n"
    found = find_traceback(traceback("KeyError: 1") + reason + traceback("ValueError: 2"))
    assert found is not None
    assert "KeyError: 1\nDuring handling" in found.text
    assert found.text.endswith("ValueError: 2")


def test_of_several_ranks_the_first_to_fail_is_blamed() -> None:
    zero, one = traceback("ValueError: 0", "[rank=0] "), traceback("ValueError: 1", "[rank=1] ")
    mixed = "".join(a + b for a, b in zip(one.splitlines(True), zero.splitlines(True), strict=True))
    found = find_traceback(mixed)
    assert found is not None
    assert (found.rank, found.text.splitlines()[-1]) == (1, "ValueError: 1")


def test_a_rank_that_tells_of_another_is_not_blamed() -> None:
    echo = traceback("determined.errors.DistributedError: rank 1 is gone", "[rank=0] [rank0]: ")
    cause = traceback("ZeroDivisionError: division by zero", "[rank=1] [rank1]: ")
    found = find_traceback(echo + cause + traceback("RuntimeError: a launcher's own"))
    assert found is not None
    assert (found.rank, found.text.splitlines()[0]) == (1, "Traceback (most recent call last):")


def test_a_traceback_that_is_cut_off_counts() -> None:
    found = find_traceback("Traceback (most recent call last):\n  File 'x'\n")
    assert found is not None
    assert found.text == "Traceback (most recent call last):\n  File 'x'"


def test_an_endless_traceback_is_cut() -> None:
    text = "Traceback (most recent call last):\n" + "  again\n" * 100_000
    found = find_traceback(text)
    assert found is not None
    assert len(found.text.splitlines()) < 400


def test_only_the_last_state_of_a_progress_bar_is_shown() -> None:
    assert last_lines("a\n10%\r20%\r30%\r\nb\n") == ("a", "30%", "b")


def test_only_the_end_of_a_long_log_is_read(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"0123456789\n" * 1_000_000 + b"\xffend\n")
    text = read_end(log)
    assert len(text) < 9e6
    assert text.startswith("0123456789\n")
    assert text.endswith("�end\n")
    assert read_end(tmp_path / "absent") == ""


def test_the_line_that_shows_the_configuration_is_no_last_word() -> None:
    text = f"{CONFIGURATION_MARK}{{}}\nhalf of\nit\n"
    assert last_lines(text) == ("half of", "it")
    assert last_lines(f"{CONFIGURATION_MARK}{{}}\n") == ()
