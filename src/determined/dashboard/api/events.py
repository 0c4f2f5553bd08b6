"""The stream of changes that a page listens to; `live.py` makes the messages."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from determined.dashboard.endpoints.endpoints import ApiError, Routes
from determined.dashboard.endpoints.parameters import NO_NULL, Id, Separated, SeriesKey
from determined.dashboard.live import Listener
from determined.dashboard.view import View

routes = Routes("events")


_Since = Annotated[
    str,
    Field(
        max_length=80,
        pattern=NO_NULL,
        description="The id of the last message; like the header Last-Event-ID.",
    ),
]
_Series = Annotated[
    tuple[SeriesKey, ...],
    Field(max_length=500),
    Separated(";", about="Curves whose new points to send."),
]
_Log = Annotated[Id, Field(description="The trial whose new log lines to send.")]


@routes.get("/events", "text/event-stream")
def events(
    view: View, since: _Since | None = None, series: _Series = (), log: _Log | None = None
) -> Listener:
    """Changes as they happen (server-sent events): `change`, `points` and `log`."""
    if log is not None:
        view.trial(log)
    if view.has_store:
        _ = view.reader  # an unreadable store is refused before the stream begins
    elif series:
        raise ApiError(404, "There are no trials yet.")
    return Listener(curves=list(series), log_trial=log)
