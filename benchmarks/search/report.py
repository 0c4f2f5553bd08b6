"""From runs to a table and a picture."""

from __future__ import annotations

import pathlib
import statistics
from collections.abc import Mapping
from typing import Any

from benchmarks.report import Number

SHARES = {"10%": 0.1, "25%": 0.25, "50%": 0.5, "100%": 1.0}  # of the budget
_QUARTER, _FULL = "25%", "100%"
_MODEL = "ours, auto"


def text(results: Mapping[str, Any]) -> str:
    """Return tables for a terminal: losses with quartiles, ranks paired over seeds, decisions."""
    lines = [
        f"budget {results['budget']} epochs, {results['seeds']} seeds, {results['workers']} workers"
    ]
    for task, found in results["tasks"].items():
        lines += ["", f"{task} (best of the table {found['best']:.4f}): validation loss, quartiles"]
        for name, run in found["runs"].items():
            cells = [_loss(Number.of(run[when])) for when in (_QUARTER, _FULL)]
            lines.append(f"  {name:<26} {cells[0]}   {cells[1]}   {_trials(run)} trials")
    lines += ["", "mean regret in percent of a random configuration's, +- its 95% interval"]
    lines += _rows(results, {when: regrets(results, when) for when in SHARES}, "{:5.1f} +- {:3.1f}")
    lines += ["", "mean rank over tasks and seeds (1 is best)"]
    ranks = {when: mean_ranks(results, when) for when in SHARES}
    lines += _rows(
        results,
        {when: {name: (rank,) for name, rank in found.items()} for when, found in ranks.items()},
        "{:5.2f}",
    )
    lines += ["", "processor time per decision"]
    for name, thought in results["thought"].items():
        lines.append(
            f"  {name:<26} new trial {1e6 * thought['new_trial']:8.1f} us, "
            f"result {1e6 * thought['result']:7.1f} us"
        )
    return "\n".join(lines)


def _rows(
    results: Mapping[str, Any], cells: Mapping[str, Mapping[str, tuple[float, ...]]], form: str
) -> list[str]:
    width = len(form.format(0, 0))
    lines = ["  " + " " * 26 + "".join(f" {when:>{width}}" for when in cells)]
    for name in sorted(results["thought"], key=lambda name: cells[_FULL][name]):
        row = "".join(" " + form.format(*cells[when][name]) for when in cells)
        lines.append(f"  {name:<26}{row}")
    return lines


def regrets(results: Mapping[str, Any], when: str) -> dict[str, tuple[float, float]]:
    """Return each contender's mean regret over the tasks, with half its 95% interval.

    The regret of a run is its distance from the best loss of the task, in percent of the distance
    of a typical random configuration. The interval is for other seeds on the same tasks.
    """
    found: dict[str, tuple[float, float]] = {}
    tasks = results["tasks"].values()
    for name in results["thought"]:
        means, variances = [], []
        for task in tasks:
            scale = 100 / (task["typical"] - task["best"])
            losses = [scale * (loss - task["best"]) for loss in task["runs"][name][when]]
            means.append(statistics.mean(losses))
            variances.append(statistics.variance(losses) / len(losses) if len(losses) > 1 else 0.0)
        found[name] = statistics.mean(means), 1.96 * sum(variances) ** 0.5 / len(means)
    return found


def _loss(number: Number) -> str:
    return f"{number.median:.4f} ({number.low:.4f}-{number.high:.4f})"


def _trials(run: Mapping[str, Any]) -> int:
    return int(statistics.median(run["trials"]))


def mean_ranks(results: Mapping[str, Any], when: str) -> dict[str, float]:
    """Return each contender's mean rank among all with the same task and seed; ties share."""
    ranks: dict[str, list[float]] = {}
    for found in results["tasks"].values():
        for seed in range(results["seeds"]):
            losses = {name: run[when][seed] for name, run in found["runs"].items()}
            for name, loss in losses.items():
                better = sum(other < loss for other in losses.values())
                equal = sum(other == loss for other in losses.values())
                ranks.setdefault(name, []).append(better + (equal + 1) / 2)
    return {name: statistics.mean(found) for name, found in ranks.items()}


def paired(results: Mapping[str, Any], mine: str, theirs: str, when: str) -> tuple[int, int, int]:
    """Return how often one beat, equalled and lost to another with the same task and seed."""
    won = equal = lost = 0
    for found in results["tasks"].values():
        runs = found["runs"]
        for ours, other in zip(runs[mine][when], runs[theirs][when], strict=True):
            won, equal, lost = won + (ours < other), equal + (ours == other), lost + (ours > other)
    return won, equal, lost


def goals(results: Mapping[str, Any]) -> list[str]:
    """Return the goals, each as reached or missed."""
    lines = []
    names = list(results["thought"])
    peers = [name for name in names if not name.startswith("ours")]
    if _MODEL in names:
        for when in SHARES:
            found = regrets(results, when)
            for peer in peers:
                won, equal, lost = paired(results, _MODEL, peer, when)
                is_ahead = found[_MODEL][0] < found[peer][0]
                lines.append(
                    f"{when}: {_MODEL} is {'ahead of' if is_ahead else 'BEHIND'} {peer}: regret "
                    f"{found[_MODEL][0]:.1f} and {found[peer][0]:.1f}; won / equal / lost "
                    f"{won} / {equal} / {lost}"
                )
    won, equal, lost = paired(results, "ours, promotion", "ours, async_halving", _FULL)
    lines.append(
        f"{_FULL}: promotion against stopping, won / equal / lost: {won} / {equal} / {lost}"
    )
    if "ray, ASHA" in names:
        won, equal, lost = paired(results, "ours, async_halving", "ray, ASHA", _FULL)
        lines.append(
            f"{_FULL}: our async_halving reaches the loss of Ray's in {equal} runs, another in "
            f"{won + lost}"
        )
    return lines


def draw(results: Mapping[str, Any], path: pathlib.Path) -> bool:
    """Write the median best loss over the budget, one panel per task; False without matplotlib."""
    try:
        import matplotlib
    except ImportError:
        return False
    matplotlib.use("Agg")
    from matplotlib import pyplot

    tasks = results["tasks"]
    figure, panels = pyplot.subplots(
        2, (len(tasks) + 1) // 2, figsize=(13, 7), layout="constrained", squeeze=False
    )
    for axes, (task, found) in zip(panels.flat, tasks.items(), strict=False):
        for name, run in found["runs"].items():
            ours = name.startswith("ours")
            axes.plot(
                results["grid"],
                run["path"],
                label=name,
                linewidth=2 if ours else 1,
                linestyle="-" if ours else "--",
            )
        axes.set_title(task)
        axes.set_xlabel("epochs trained in all")
        axes.set_ylabel("best validation loss, median")
    panels.flat[0].legend(fontsize=7)
    figure.savefig(path, dpi=110)
    return True
