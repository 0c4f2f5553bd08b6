"""Parameters that several endpoints share."""

from __future__ import annotations

from determined.dashboard.endpoints.endpoints import Parameter
from determined.dashboard.endpoints.kinds import Choice, Integer, Many, Text
from determined.platform.rules.states import State

ID = Integer(1)
UUID = Text(100, r"[A-Za-z0-9._-]+", 1)
LIMIT = Parameter(Integer(0, 1000), 100, about="The maximum number of rows.")
OFFSET = Parameter(Integer(0, 10_000_000), 0, about="How many rows to skip.")
ORDER = Parameter(
    Choice(("asc", "desc")), "asc", about="Rows without a value come last either way."
)
STATES = Parameter(
    Many(Choice((*(state.value for state in State), "RUNNING", "QUEUED")), 20),
    about="Only these states; ACTIVE is RUNNING and QUEUED.",
)
COLUMNS = Parameter(
    Many(Choice((), ("hparam", "metric")), 100),
    [],
    about="Additional values to show: `hparam:NAME`, `metric:GROUP.NAME`.",
)
PIXELS = Parameter(Integer(1, 4000), 800, about="How wide the chart is.")
