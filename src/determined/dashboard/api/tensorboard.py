"""Trials in TensorBoard: started on request, never by viewing a page."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field
from typing_extensions import TypedDict

from determined.dashboard.endpoints.endpoints import ApiError, Routes
from determined.dashboard.endpoints.parameters import Body, Id
from determined.dashboard.view import View

routes = Routes("tensorboard")


class Selection(Body):
    experiments: Annotated[list[Id], Field(max_length=100)] = []
    trials: Annotated[list[Id], Field(max_length=1000)] = []


class TensorBoardJson(TypedDict):
    """Its address, as seen from the dashboard's machine; of many trials it shows the best."""

    url: str
    shown: int
    trials: int


@routes.post("/tensorboard")
def start(view: View, body: Selection) -> TensorBoardJson:
    """Start TensorBoard for the trials of experiments, or for single trials.

    It ends with the dashboard. While it runs, requests for the same trials reuse it.
    """
    experiments, trials = body.experiments, body.trials
    if not experiments and not trials:
        raise ApiError(422, "The body: expected ids of experiments or of trials.")
    for number in experiments:
        view.experiment(number)
    for number in trials:
        view.trial(number)
    opened = view.tensorboards.open(experiments, trials)
    return {"url": opened.url, "shown": opened.shown, "trials": opened.trials}
