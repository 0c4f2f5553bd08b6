"""The command line: `python -m determined.demo [--folder FOLDER]`."""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from rich.console import Console

_FILES = Path(__file__).with_name("files")
_KILL_AFTER_EPOCHS = (4, 9, 15)
_SHOWN_EPOCHS = (*_KILL_AFTER_EPOCHS, 20)
_DET = (sys.executable, "-m", "determined.cli")
_console = Console(highlight=False, soft_wrap=True)


class DemoError(Exception):
    """A part of the demo did not do what it promises."""


def main(arguments: list[str] | None = None) -> int:
    """Tell the story; 1 if one of its promises does not hold."""
    options = _parser().parse_args(arguments)
    folder: Path = options.folder.resolve()
    code = folder / "digits"
    try:
        code.mkdir(parents=True, exist_ok=True)
        for name in ("train.py", "search.yaml", "digits.npz", "README.md"):
            shutil.copyfile(_FILES / name, code / name)
    except OSError as e:
        print(f"--folder {folder}: cannot write there ({e}). Name another folder.", file=sys.stderr)
        return 1
    environment = _environment(folder)
    try:
        accuracy = _train_and_kill(code, environment)
        _search(code, environment, accuracy)
    except DemoError as e:
        print(f"\n{e}", file=sys.stderr)
        return 1
    finally:
        subprocess.run([*_DET, "supervisor", "stop"], env=environment, capture_output=True)
    _say(f"\n[bold]Look around[/] (what was run is in {code}):")
    _say(f"  export DET_HOME={shlex.quote(environment['DET_HOME'])}")
    _say("  det experiment list")
    _say("  det dashboard          # in a browser; needs the extra `dashboard`")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m determined.demo",
        description="Train a net on real images, kill the training three times, compare the "
        "weights with an undisturbed run, then search for a better net. It takes about half a "
        "minute and needs no network.",
    )
    parser.add_argument(
        "--folder",
        type=Path,
        default=Path("determined-demo"),
        help="where the script, its checkpoints and records go (default: %(default)s)",
    )
    return parser


def _environment(folder: Path) -> dict[str, str]:
    """What the commands below see: records and checkpoints of their own, next to the script."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("DET_")}
    slots = os.environ.get("DET_SLOTS", str(min(2, os.cpu_count() or 1)))
    places = {"DET_HOME": str(folder / "home"), "DET_STORAGE": str(folder / "checkpoints")}
    return {**kept, **places, "DET_SLOTS": slots, "PYTHONUNBUFFERED": "1"}


def _train_and_kill(folder: Path, environment: Mapping[str, str]) -> float:
    """Train twice, the second time with kills; return the accuracy that both reach."""
    number = _next_number(folder)
    _say("[bold]1. Train a small net on images of handwritten digits.[/]\n")
    whole = _Training(folder, environment, f"undisturbed-{number}")
    whole.run()

    _say("\n[bold]2. The same training again, killed three times in the middle.[/]\n")
    killed = _Training(folder, environment, f"killed-{number}")
    for epochs in _KILL_AFTER_EPOCHS:
        killed.run(kill_after=epochs)
    killed.run()
    if killed.weights != whole.weights:
        raise DemoError(
            f"The weights differ: {whole.weights} undisturbed, {killed.weights} after the kills. "
            f"This must not happen. Please report it, with the folder {folder}."
        )
    _say(
        f"\n[green]The same weights, bit for bit: {killed.weights}[/], "
        f"after {len(_KILL_AFTER_EPOCHS)} x kill -9."
    )
    return whole.accuracy


class _Training:
    """`python train.py --name NAME`, as often as it takes, and what its output said."""

    def __init__(self, folder: Path, environment: Mapping[str, str], name: str) -> None:
        self._folder, self._environment = folder, environment
        self._command = ["train.py", "--name", name]
        self._log = folder / f"{name}.log"
        self.weights = ""
        self.accuracy = 0.0

    def run(self, kill_after: int | None = None) -> None:
        """Run to the end, or kill it when it has validated after so many epochs."""
        _say(f"$ python {' '.join(self._command)}")
        process = subprocess.Popen(
            [sys.executable, *self._command],
            cwd=self._folder,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        was_killed = False
        with process:
            try:
                for line in self._lines(process):
                    if kill_after is not None and self._epochs(line) >= kill_after:
                        process.kill()
                        was_killed = True
            except BaseException:
                process.kill()
                raise
        if was_killed:
            _say("  [red]Killed[/]  # kill -9")
        elif process.returncode != 0:
            raise DemoError(f"python train.py failed; its output is in {self._log}.")

    def _lines(self, process: subprocess.Popen[str]) -> Iterator[str]:
        assert process.stdout is not None
        with self._log.open("a") as log:
            for line in process.stdout:
                log.write(line)
                self._note(line)
                yield line

    def _note(self, line: str) -> None:
        if found := re.match(r"weights: (\w+)", line):
            self.weights = found[1]
        elif found := re.match(r"validation .*?\baccuracy=([\d.]+)", line):
            self.accuracy = float(found[1])
        if line.startswith(("resumed", "weights")) or self._epochs(line) in _SHOWN_EPOCHS:
            _say(f"  {line.strip()}")

    @staticmethod
    def _epochs(line: str) -> int:
        """The epochs that a line of a validation tells of; otherwise -1."""
        found = re.match(r"validation batch=(\d+)/(\d+)", line)
        return -1 if found is None else round(20 * int(found[1]) / int(found[2]))


def _next_number(folder: Path) -> int:
    """Another one for each demo in this folder, so that none continues an earlier one."""
    numbers = [int(path.stem.rpartition("-")[2]) for path in folder.glob("undisturbed-*.log")]
    return 1 + max(numbers, default=0)


def _search(folder: Path, environment: Mapping[str, str], accuracy: float) -> None:
    _say(
        "\n[bold]3. Search for better hyperparameters: 12 trials, poor ones are stopped early.[/]\n"
    )
    _say("$ det experiment create search.yaml .")
    created = json.loads(_det(folder, environment, "create", "search.yaml", ".", "--json"))
    experiment = str(created["experiment_id"])
    try:
        _det(folder, environment, "wait", experiment)
    except BaseException:  # Ctrl-C too: nothing goes on behind the back of somebody who left
        _det(folder, environment, "kill", experiment)
        raise
    _say(f"$ det experiment compare {experiment} --top 3")
    compare = [*_DET, "experiment", "compare", experiment, "--top", "3"]
    subprocess.run(compare, cwd=folder, env=environment, check=False)  # as wide as the terminal
    (best,) = json.loads(_det(folder, environment, "compare", experiment, "--top", "1", "--json"))
    _say("\n" + _verdict(best["best_validation"], accuracy))


def _verdict(best: float, accuracy: float) -> str:
    if best > accuracy:
        return (
            f"[green]The search found a better net: accuracy {best:.4g}[/], above {accuracy:.4g}."
        )
    return f"The search found none better than {accuracy:.4g}: its best reached {best:.4g}."


def _det(folder: Path, environment: Mapping[str, str], *words: str) -> str:
    """Run `det experiment ...`; return what it prints."""
    command = [*_DET, "experiment", *words]
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise DemoError(f"det experiment {' '.join(words)} failed:\n{done.stderr or done.stdout}")
    return done.stdout


def _say(text: str) -> None:
    _console.print(text)


if __name__ == "__main__":
    sys.exit(main())
