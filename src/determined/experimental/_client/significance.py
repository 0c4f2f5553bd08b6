"""Configurations over seeds, and whether they differ by more than noise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from determined.experimental._client.session import Session

if TYPE_CHECKING:
    from determined.platform.queries.seeds.significance import Verdict

__all__ = ["ConfigurationResults", "SeedComparison", "Significance"]


@dataclass(frozen=True)
class ConfigurationResults:
    """A configuration and its results over seeds.

    Attributes:
        name: What the sentences call it.
        experiment_id: Whose configuration it is.
        hparams: Its hyperparameters by name, with dots for nested ones.
        trial_ids: Its trials.
        results: The best value of each trial that has completed with a finite one, by seed.
        mean: The mean of the results.
        spread: Their standard deviation.
    """

    name: str
    experiment_id: int
    hparams: dict[str, Any]
    trial_ids: list[int]
    results: dict[int, float]
    mean: float | None
    spread: float | None


@dataclass(frozen=True)
class SeedComparison:
    """Two configurations, and what can be said about their difference.

    Attributes:
        a: The first one.
        b: The second one.
        method: `paired` on shared seeds, `welch` without any, `none` with too few.
        difference: The mean of B minus that of A, over the seeds that were used.
        interval: The ends of its 95 % interval, or of a higher one if several are compared.
        winner: The better one; None if the difference is within noise or seeds are too few.
        is_within_noise: Whether there are enough seeds, and they show no difference.
        sentence: All of it in words.
    """

    a: ConfigurationResults
    b: ConfigurationResults
    method: str
    difference: float | None
    interval: tuple[float, float] | None
    winner: ConfigurationResults | None
    is_within_noise: bool
    sentence: str


@dataclass(frozen=True)
class Significance:
    """The answer of `compare`; `str()` of it has one sentence for each comparison.

    Attributes:
        metric: The metric that was compared.
        smaller_is_better: Whether smaller values win.
        configurations: All of them; if there are more than two, the best mean first.
        comparisons: The first one with each of the others.
        notes: Sentences about trials that were left out.
    """

    metric: str
    smaller_is_better: bool
    configurations: list[ConfigurationResults]
    comparisons: list[SeedComparison]
    notes: list[str]

    def __str__(self) -> str:
        return "\n".join([*(one.sentence for one in self.comparisons), *self.notes])


def compare_experiments(
    session: Session,
    experiment_ids: Sequence[int],
    metric: str | None,
    smaller_is_better: bool | None,
) -> Significance:
    """Compare the configurations of experiments over their seeds."""
    from determined.platform.queries.comparison import compare
    from determined.platform.queries.seeds.repeats import judge_all
    from determined.store import TrialFilter

    reader = session.service.reader
    found = [session.service.experiment(number) for number in experiment_ids]
    trials = [t for one in found for t in reader.trials(TrialFilter(experiment_id=one.id)).rows]
    seen = compare(reader, found, trials, metric, smaller_is_better)
    judged = judge_all(seen, experiment_ids)
    shown = [
        ConfigurationResults(
            name,
            group.experiment_id,
            group.hparams,
            group.trial_ids,
            group.results,
            group.mean,
            group.spread,
        )
        for group, name in zip(judged.groups, judged.names, strict=True)
    ]
    comparisons = [
        _comparison(shown[0], other, one.verdict)
        for other, one in zip(shown[1:], judged.judged, strict=True)
    ]
    return Significance(seen.metric, seen.smaller_is_better, shown, comparisons, judged.notes)


def _comparison(
    a: ConfigurationResults, b: ConfigurationResults, verdict: Verdict
) -> SeedComparison:
    low, high = verdict.low, verdict.high
    return SeedComparison(
        a=a,
        b=b,
        method=verdict.method,
        difference=verdict.difference,
        interval=None if low is None or high is None else (low, high),
        winner=None if verdict.winner is None else a if verdict.winner == "a" else b,
        is_within_noise=verdict.winner is None and verdict.method != "none",
        sentence=verdict.sentence,
    )
