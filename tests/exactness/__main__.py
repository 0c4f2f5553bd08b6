"""The long form: `python -m tests.exactness --cases 2000 [--seed N] [--ranks 1 2 3 4]`.

Goes on after a failure, and prints each way in which the law was broken once: as the smallest case
that shows it, after so many cases and seconds. `--again "(Recipe(...), (Fault(...),))"` runs one
case, as it was printed, and shows all that differs and was said.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import os
import random
import re
import sys
import time
from collections import Counter
from collections.abc import Mapping
from typing import Any

import hypothesis
import torch

from tests.exactness.generator import QUIET, Case, cases
from tests.exactness.recipe import Recipe
from tests.exactness.running import Fault, differences_of, law_broken, problems, run
from tests.support.victims import preload

_SHOWN = 7


class Survey:
    """Many cases on so many ranks; what is known of each is kept, as shrinking asks again."""

    def __init__(self, ranks: int, count: int, seed: int, given: Mapping[str, Any]) -> None:
        self.ranks = ranks
        self.given = given
        self.count = count
        self.seed = seed
        self.kinds: Counter[str] = Counter()
        self._first: dict[str, str] = {}  # when each kind was found
        self._known: dict[Case, list[str]] = {}

    def run(self) -> None:
        """Generate cases, then look for the smallest of each kind of problem."""
        began = time.monotonic()

        def look(case: Case) -> None:
            is_new = case not in self._known
            kind = signature(self.problems(case))
            if kind and kind not in self.kinds:
                seconds = time.monotonic() - began
                self._first[kind] = f"case {len(self._known)}, {seconds:.0f} s"
                say(f"[{self._first[kind]}] {kind}\n    {case}")
            if kind and is_new:
                self.kinds[kind] += 1

        self._generate(look, [hypothesis.Phase.generate])
        say(
            f"{self.ranks} rank(s), seed {self.seed}: {len(self._known)} cases in "
            f"{time.monotonic() - began:.0f} s; {sum(self.kinds.values())} broke the law"
        )

    def smallest(self, kind: str) -> None:
        """Shrink the case that first showed a kind of problem, and print it."""

        smallest: Case | None = None

        def look(case: Case) -> None:
            nonlocal smallest
            if signature(self.problems(case)) == kind:
                smallest = case
                raise AssertionError

        phases = [hypothesis.Phase.generate, hypothesis.Phase.shrink]
        with contextlib.suppress(AssertionError):
            self._generate(look, phases)
        if smallest is not None:
            lines = self.problems(smallest)[:_SHOWN]
            say(f"\n{self.kinds[kind]} times, first in {self._first[kind]}: {smallest}")
            say("    " + "\n    ".join(lines))

    def problems(self, case: Case) -> list[str]:
        """Run a case, unless it was run before."""
        if case not in self._known:
            try:
                self._known[case] = problems(*case)
            except Exception as error:
                last = (str(error).strip().splitlines() or [""])[-1]
                self._known[case] = ["It cannot go on:", f"{type(error).__name__}: {last}"]
        return self._known[case]

    def _generate(self, look: object, phases: list[hypothesis.Phase]) -> None:
        wanted = hypothesis.settings(QUIET, max_examples=self.count, phases=phases)
        test = hypothesis.given(cases(self.ranks, **self.given))(look)  # type: ignore[arg-type]  # a function
        hypothesis.seed(self.seed)(wanted(test))()


def signature(found: list[str]) -> str:
    """Return what kind of problem it is, whatever the numbers; nothing if there is none."""
    if not found:
        return ""
    silent = "not a word" in found[0]
    name = found[1].split(": ")[0] if silent else found[1]
    name = re.sub(r"/dev/shm/\S+", "PATH", name)
    return f"{'silent' if silent else 'said'}: {re.sub('[0-9]+', 'N', name)[:80]}"


def show(recipe: Recipe, faults: tuple[Fault, ...]) -> int:
    """Run a case, and print what it comes to."""
    whole = run(recipe)
    broken = run(recipe, faults, whole.passed)
    say("\n".join(["What happened:", *broken.faults, "What was said:", *broken.said]))
    found = differences_of(whole, broken)
    say("\n".join(["What differs:", *found]))
    return int(bool(law_broken(whole, broken)))


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=200)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**31))
    parser.add_argument("--ranks", type=int, nargs="+", default=[1])
    parser.add_argument("--no-shrink", action="store_true")
    parser.add_argument("--given", default="{}", help="choices of the recipe, as a dictionary")
    parser.add_argument("--again", metavar="CASE", help="a case, as it was printed")
    arguments = parser.parse_args()
    os.environ["DET_TRACKING"] = "off"
    torch.set_num_threads(1)
    preload()
    if arguments.again is not None:
        return show(*eval(arguments.again, {"Recipe": Recipe, "Fault": Fault}))
    given = ast.literal_eval(arguments.given)
    surveys = [Survey(n, arguments.cases, arguments.seed, given) for n in arguments.ranks]
    for survey in surveys:
        survey.run()
        for kind in [] if arguments.no_shrink else survey.kinds:
            survey.smallest(kind)
    return int(any(survey.kinds for survey in surveys))


if __name__ == "__main__":
    sys.exit(main())
