"""The example of the retention rules: two trials, and what each set of counts keeps of them."""

from __future__ import annotations

# Of each trial: checkpoint, step, and the validation there; smaller is better.
TRIALS: dict[int, list[tuple[str, int, float | None]]] = {
    1: [("a", 100, 0.9), ("b", 200, None), ("c", 300, 0.5), ("d", 400, 0.7)],
    2: [("e", 100, 0.4), ("f", 200, 0.6), ("g", 300, None)],
}
# Best of the experiment, best and newest of each trial: what stays.
KEPT = [
    ((0, 0, 0), ""),
    ((1, 0, 0), "e"),
    ((3, 0, 0), "cef"),
    ((9, 0, 0), "acdef"),
    ((0, 1, 0), "ce"),
    ((0, 0, 1), "dg"),
    ((0, 0, 2), "cdfg"),
    ((0, 1, 1), "cdeg"),
    ((3, 1, 1), "cdefg"),
]
