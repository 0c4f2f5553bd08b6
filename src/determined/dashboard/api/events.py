"""The stream of changes that a page listens to; `live.py` makes the messages."""

from __future__ import annotations

from determined.dashboard.endpoints.endpoints import Parameter, Refusal, Routes
from determined.dashboard.endpoints.kinds import Many, SeriesKey, Text
from determined.dashboard.endpoints.parameters import ID
from determined.dashboard.live import Listener
from determined.dashboard.view import View
from determined.store import CurveKey

routes = Routes("events")


@routes.get(
    "/events",
    "text/event-stream",
    since=Parameter(Text(80), about="The id of the last message; like the header Last-Event-ID."),
    series=Parameter(Many(SeriesKey(), 500, ";"), [], about="Curves whose new points to send."),
    log=Parameter(ID, about="The trial whose new log lines to send."),
)
def events(
    view: View,
    since: str | None,
    series: list[tuple[int, str, str, bool]],
    log: int | None,
) -> Listener:
    """Changes as they happen (server-sent events): `change`, `points` and `log`."""
    if log is not None:
        view.trial(log)
    if view.has_store:
        _ = view.reader  # an unreadable store is refused before the stream begins
    elif series:
        raise Refusal(404, "There are no trials yet.")
    return Listener(curves=[CurveKey(*key) for key in series], log_trial=log)
