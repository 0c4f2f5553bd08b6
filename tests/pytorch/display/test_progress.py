from __future__ import annotations

import os
import pty
import re
import sys
import types
from pathlib import Path

import pytest

from determined.pytorch._display.progress import Progress
from tests.support.terminal import end, run_in_pipes, run_in_terminal, start_script

_CONTROLS = re.compile(r"\x1b\[\??([\d;]*)([A-Za-z])")


def _screen(output: str) -> list[str]:
    """Return the lines a person would see at the end: follows returns, cursor moves and erasing."""
    lines, row, column = [""], 0, 0
    position = 0
    while position < len(output):
        control = _CONTROLS.match(output, position)
        if control:
            position = control.end()
            count = int(control[1]) if control[1].isdigit() else 1
            if control[2] == "A":
                row -= count
            elif control[2] == "K":
                lines[row] = ""
            continue
        character = output[position]
        position += 1
        if character == "\r":
            column = 0
        elif character == "\n":
            row += 1
            lines += [""] * (row + 1 - len(lines))
        else:
            line = lines[row].ljust(column)
            lines[row] = line[:column] + character + line[column + 1 :]
            column += 1
    return [line.rstrip() for line in lines]


_RUN = """
    import logging, time
    logging.basicConfig(level=logging.INFO)
    from determined.pytorch._display.progress import Progress

    batch = 0
    progress = Progress(
        max_length_batches=40, epoch_length=10, samples_per_batch=8, best=("val_loss", None),
        position=lambda: batch,
    )
    for batch in range(1, 41):
        time.sleep(0.01)
        if batch % 10 == 0:
            progress.training(batch, {"loss": 1 / batch, "batches": batch, "name": "text"})
            print(f"printed {batch}")
            logging.info("logged %d", batch)
    progress.status("validating")
    progress.validated({"val_loss": 0.125}, best=True)
    progress.checkpointed("0a1b", 40)
    progress.finish("40 batches in all")
    print("after")
"""


def test_a_pipe_gets_plain_lines_that_can_be_grepped() -> None:
    result = run_in_pipes(_RUN)
    assert result.exit_code == 0
    lines = [line for line in result.errors.splitlines() if not line.startswith("INFO")]
    assert re.fullmatch(
        r"training batch=10/40 done=25% epoch=1/4 rate=\S+/s samples=\S+/s left=0:00:\d\d loss=0.1",
        lines[0],
    )
    assert lines[-4].startswith("training batch=40/40 done=100% epoch=4/4 ")
    assert lines[-3:] == [
        "validation batch=40/40 val_loss=0.125 best_val_loss=0.125 best_batch=40",
        "checkpoint batch=40/40 uuid=0a1b",
        "40 batches in all",
    ]
    assert "\x1b" not in result.errors


def test_a_terminal_shows_the_run_with_prints_and_logs_above() -> None:
    output = run_in_terminal(_RUN)
    screen = [line for line in _screen(output) if line]
    expected = [
        line for n in (10, 20, 30, 40) for line in (f"printed {n}", f"INFO:root:logged {n}")
    ]
    assert screen[:8] == expected
    assert re.fullmatch(r"finished +━+ +100%  batch 40/40  epoch 4/4", screen[8])
    assert re.fullmatch(r"speed +\S+ batches/s  \S+ samples/s  0:00:00 left", screen[9])
    assert screen[10:] == [
        "metrics     loss 0.025",
        "validation  val_loss 0.125  at batch 40",
        "best        val_loss 0.125  at batch 40",
        "checkpoint  0a1b  at batch 40",
        "40 batches in all",
        "after",
    ]


def test_a_terminal_is_refreshed_while_the_loop_only_counts() -> None:
    output = run_in_terminal("""
        import time
        from determined.pytorch._display.progress import Progress

        batch = 0
        progress = Progress(None, max_length_batches=150, position=lambda: batch)
        for batch in range(1, 151):
            time.sleep(0.01)
        progress.finish(status="stopped")
        progress.close()
    """)
    shown = [int(number) for number in re.findall(r"batch (\d+)/150", output)]
    assert len(set(shown)) > 2
    assert len(shown) < 100
    assert re.match(r"stopped +━+ +100%  batch 150/150", _screen(output)[0])


def test_the_cursor_is_never_left_hidden() -> None:
    output = run_in_terminal("""
        import os
        from determined.pytorch._display.progress import Progress

        progress = Progress(None, max_length_batches=None, start=5, epoch_length=None)
        progress.training(6, {"loss": 0.5})
        os._exit(0)
    """)
    assert "batch 5" in output
    assert output.rindex("\x1b[?25h") > output.rfind("\x1b[?25l")


def test_prints_go_to_their_file_when_only_standard_error_is_a_terminal() -> None:
    reader, writer = os.pipe()
    with os.fdopen(reader) as pipe:
        output = run_in_terminal(_RUN, stdout=writer)
        os.close(writer)
        assert pipe.read().splitlines() == [*(f"printed {n}" for n in (10, 20, 30, 40)), "after"]
    assert "printed" not in output
    assert "finished" in output


def test_a_forked_worker_prints_for_itself() -> None:
    output = run_in_terminal("""
        import os, sys
        from determined.pytorch._display.progress import Progress

        progress = Progress(None, max_length_batches=3, start=0, epoch_length=None)
        lock = progress._live._live._lock
        lock.acquire()  # the worst moment to fork
        child = os.fork()
        if child == 0:
            print("from the worker")
            sys.exit(0)
        assert os.waitpid(child, 0)[1] == 0
        lock.release()
        assert sys.stdout is not sys.__stdout__
        progress.finish(status="stopped")
        assert sys.stdout is sys.__stdout__
    """)
    assert output.count("from the worker") == 1
    assert output.count("stopped") == 1


def test_a_stream_kept_from_during_the_run_still_works_afterwards() -> None:
    output = run_in_terminal("""
        import logging
        from determined.pytorch._display.progress import Progress

        progress = Progress(None, max_length_batches=3, start=0, epoch_length=None)
        logging.basicConfig(level=logging.INFO)
        logging.info("during")
        progress.finish()
        logging.info("afterwards")
    """)
    screen = [line for line in _screen(output) if line]
    assert screen[0] == "INFO:root:during"
    assert screen[-1] == "INFO:root:afterwards"


@pytest.mark.parametrize("value", ["off", "OFF", "0"])
def test_it_can_be_switched_off(value: str) -> None:
    result = run_in_pipes(
        _RUN.replace("basicConfig(level=logging.INFO)", "root"), DET_PROGRESS=value
    )
    assert (result.exit_code, result.errors) == (0, "")


def test_the_argument_wins_over_the_variable(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DET_PROGRESS", "off")
    progress = Progress(True, max_length_batches=None, start=0, epoch_length=None)
    progress.checkpointed("0a1b", 0)
    progress.close()
    assert capsys.readouterr().err == "checkpoint batch=0 uuid=0a1b\n"
    silent = Progress(False, max_length_batches=None, start=0, epoch_length=None)
    silent.training(1, {"loss": 1.0})
    silent.finish("nobody reads this")
    assert capsys.readouterr().err == ""


def test_a_dumb_terminal_gets_plain_lines() -> None:
    output = run_in_terminal(_RUN, TERM="dumb")
    assert "validation batch=40/40 val_loss=0.125 best_val_loss=0.125" in output
    assert "\x1b" not in output


def test_many_reports_a_second_give_few_lines_and_the_last_one(
    capsys: pytest.CaptureFixture[str],
) -> None:
    progress = Progress(True, max_length_batches=1000, start=0, epoch_length=None)
    for batch in range(1, 1001):
        progress.training(batch, {})
    progress.close()
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) < 20
    assert lines[-1].startswith("training batch=1000/1000")


_SURVIVES = """
    import sys
    from determined.pytorch._display.progress import Progress

    {before}
    progress = Progress(True, max_length_batches=2, start=0, epoch_length=1)
    progress.training(1, {{"loss": 0.5}})
    {during}
    progress.validated({{"val": 1}}, best=False)
    progress.training(2, {{"loss": 0.5}})
    progress.finish("end")
    print("survived")
"""


@pytest.mark.parametrize(
    ("before", "during"),
    [
        ("sys.stderr = None", ""),
        ("sys.stderr.close()", ""),
        ("", "sys.stderr.close()"),
        ("import os; os.close(2)", ""),
        ("import os; r, w = os.pipe(); os.dup2(w, 2); os.close(w); os.close(r)", ""),
    ],
)
def test_a_run_survives_without_standard_error(before: str, during: str) -> None:
    result = run_in_pipes(_SURVIVES.format(before=before, during=during))
    assert (result.exit_code, result.output) == (0, "survived\n")


def test_a_run_survives_its_terminal(tmp_path: Path) -> None:
    script = """
        import pathlib, signal, time
        from determined.pytorch._display.progress import Progress

        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        progress = Progress(None, max_length_batches=2, start=0, epoch_length=1)
        print("ready", flush=True)
        path = pathlib.Path({path!r})
        while not path.exists():
            time.sleep(0.02)
        progress.training(1, {{"loss": 0.5}})
        time.sleep(0.3)
        progress.finish("end")
        path.write_text("survived")
    """
    controller, terminal = pty.openpty()
    reads, writes = os.pipe()
    path = tmp_path / "gone"
    process = start_script(script.format(path=str(path)), writes, terminal, {})
    os.close(terminal)
    os.close(writes)
    with os.fdopen(reads) as output:
        assert output.readline() == "ready\n"
        os.close(controller)
        path.touch()
        assert end(process) == 0
    assert path.read_text() == "survived"


def test_a_resumed_run_shows_its_position_and_best_value_at_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    progress = Progress(
        True, max_length_batches=30, start=20, epoch_length=10, best=("error", 0.25)
    )
    first = capsys.readouterr().err
    assert first == "resumed batch=20/30 done=67% epoch=2/3 best_error=0.25\n"
    progress.training(21, {"loss": 2, "flag": True})
    progress.close()
    (line,) = capsys.readouterr().err.splitlines()
    assert re.fullmatch(
        r"training batch=21/30 done=70% epoch=3/3 rate=\S+/s left=\d:\d\d:\d\d loss=2 flag=1", line
    )


def test_a_terminal_shows_where_a_run_resumed_before_its_first_batch() -> None:
    output = run_in_terminal("""
        import os
        from determined.pytorch._display.progress import Progress

        Progress(max_length_batches=30, start=20, epoch_length=10, best=("error", 0.25))
        os._exit(0)
    """)
    screen = _screen(output)
    assert re.match(r"starting +━+\S* +67%  batch 20/30  epoch 2/3", screen[0])
    assert screen[1:3] == ["speed       resumed at batch 20", "best        error 0.25"]


def test_the_best_validation_stays_beside_a_worse_last_one(
    capsys: pytest.CaptureFixture[str],
) -> None:
    progress = Progress(True, best=("error", None))
    for batches, error in ((1, 0.25), (2, 0.5)):
        progress.training(batches, {})
        progress.validated({"error": error}, best=error == 0.25)
    progress.close()
    assert capsys.readouterr().err.splitlines()[-1] == (
        "validation batch=2 error=0.5 best_error=0.25 best_batch=1"
    )


def test_a_terminal_says_while_a_checkpoint_is_being_written() -> None:
    output = run_in_terminal("""
        import os
        from determined.pytorch._display.progress import Progress

        progress = Progress(is_saving=lambda: True)
        progress.checkpointed("0a1b", 0)
        progress.finish()
    """)
    assert "checkpoint  0a1b  at batch 0  writing the next" in _screen(output)


# How tqdm draws: from the start of the line, again and again, without ending it.
_BAR = """
    import sys, time
    from determined.pytorch._display.progress import Progress

    batches = 0
    progress = Progress(max_length_batches=3, position=lambda: batches)
    for batch in range(1, 4):
        for step in range(1, 6):
            sys.stderr.write(f"\\rinner {{step}}/5")
            sys.stderr.flush()
            time.sleep(0.05)
        sys.stderr.write({end!r})
        print(f"batch {{batch}}")
        batches = batch
    print("no end of line", end="", flush=True)
    time.sleep(0.5)
    progress.finish()
"""


@pytest.mark.parametrize(
    ("end", "left"),
    [("\n", ["inner 5/5", "batch 1", "inner 5/5", "batch 2", "inner 5/5", "batch 3"]),
     ("\r         \r", ["batch 1", "batch 2", "batch 3"])],
)  # fmt: skip
def test_a_bar_that_redraws_itself_stays_one_line(end: str, left: list[str]) -> None:
    output = run_in_terminal(_BAR.format(end=end))
    screen = _screen(output)
    assert screen[: len(left)] == left
    assert screen[len(left)].startswith("finished")
    assert screen[-1] == "no end of line"
    assert len(set(re.findall(r"inner \d/5", output))) > 1


def test_tqdm_inside_a_batch_leaves_the_display_whole() -> None:
    output = run_in_terminal("""
        import time
        from tqdm import tqdm
        from determined.pytorch._display.progress import Progress

        batches = 0
        progress = Progress(max_length_batches=2, position=lambda: batches)
        for batch in (1, 2):
            for _ in tqdm(range(20), desc=f"inner {batch}"):
                time.sleep(0.02)
            batches = batch
        progress.finish("done")
    """)
    screen = [line for line in _screen(output) if line]
    assert [line.split(":")[0] for line in screen[:2]] == ["inner 1", "inner 2"]
    assert all("100%" in line for line in screen[:2])
    assert screen[2].startswith("finished")
    assert screen[-1] == "done"


def test_a_first_interrupt_is_answered_above_the_display() -> None:
    output = run_in_terminal("""
        import os, signal, time
        from determined.core._stop_signals import StopSignals
        from determined.pytorch._display.progress import Progress

        signals = StopSignals(True)
        signals.arm()
        progress = Progress(max_length_batches=2, start=1, best=("error", 0.5))
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.5)
        progress.finish("done", status="stopped")
    """)
    screen = [line for line in _screen(output) if line]
    assert screen[0].startswith("Received SIGINT: finishing the current batch")
    assert screen[1].startswith("stopped")
    assert len(screen) == 5


def test_an_open_line_may_be_longer_than_the_terminal() -> None:
    output = run_in_terminal("""
        import time
        from determined.pytorch._display.progress import Progress

        progress = Progress(max_length_batches=2)
        print("x" * 300)
        print("y" * 300, end="", flush=True)
        time.sleep(0.3)
        print()
        progress.finish("done")
    """)
    assert "x" * 300 in output
    assert "y" * 300 in output


def test_notebooks_get_the_last_line_on_standard_output(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    progress = Progress(enabled=True)
    progress.finish("Finished.")
    assert capsys.readouterr() == ("", "Finished.\n")
    progress = Progress(enabled=True)
    monkeypatch.setitem(sys.modules, "ipykernel", types.ModuleType("ipykernel"))
    progress.finish("Finished.")
    assert capsys.readouterr() == ("Finished.\n", "")
