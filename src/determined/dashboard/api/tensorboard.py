"""Trials in TensorBoard: started on request, never by viewing a page."""

from __future__ import annotations

from typing import Any, TypedDict

from determined.dashboard.endpoints.bodies import AN_ID, list_of, record
from determined.dashboard.endpoints.endpoints import Refusal, Routes
from determined.dashboard.view import View

routes = Routes("tensorboard")

_WHAT = record(experiments=list_of(AN_ID, 100), trials=list_of(AN_ID, 1000))


class TensorBoardShape(TypedDict):
    """Its address, as seen from the dashboard's machine; of many trials it shows the best."""

    url: str
    shown: int
    trials: int


@routes.post("/tensorboard", body=_WHAT)
def start(view: View, body: dict[str, Any]) -> TensorBoardShape:
    """Start TensorBoard for the trials of experiments, or for single trials.

    It ends with the dashboard. While it runs, requests for the same trials reuse it.
    """
    experiments, trials = body.get("experiments", []), body.get("trials", [])
    if not experiments and not trials:
        raise Refusal(422, "The body: expected ids of experiments or of trials.")
    for number in experiments:
        view.experiment(number)
    for number in trials:
        view.trial(number)
    opened = view.tensorboards.open(experiments, trials)
    return {"url": opened.url, "shown": opened.shown, "trials": opened.trials}
