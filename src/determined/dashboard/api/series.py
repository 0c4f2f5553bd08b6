"""Curves for charts."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import quote

from pydantic import Field

from determined.dashboard.endpoints.endpoints import Routes
from determined.dashboard.endpoints.parameters import Number, OneOf, Separated, SeriesKey
from determined.dashboard.series import fitting_pixels, pack
from determined.dashboard.view import View
from determined.store import Curve, CurveKey

routes = Routes("series")

_AXES = {"steps": "steps", "wall": "time", "relative": "relative", "epochs": "epochs"}
_AS_BROWSERS = "!'()*"  # what encodeURIComponent leaves as it is, besides what `quote` does
_MOST_KEYS = 500


_Keys = Annotated[
    tuple[SeriesKey, ...],
    Field(min_length=1, max_length=_MOST_KEYS),
    Separated(
        ";",
        about="TRIAL:GROUP:NAME or TRIAL:GROUP:NAME:batches, parts percent-encoded, `;` between.",
    ),
]
_Axis = Annotated[
    Annotated[str, OneOf(tuple(_AXES))] | Annotated[str, Field(pattern=r"^metric:[^\x00]{1,400}$")],
    Field(description="Or `metric:GROUP.NAME`."),
]
_From = Annotated[
    Number | None, Field(alias="from", description="Only points with at least this x.")
]
_To = Annotated[Number, Field(description="Only points with at most this x.")]
_Pixels = Annotated[int, Field(ge=1, le=4000, description="How wide the chart is.")]
_Smooth = Annotated[Number, Field(ge=0, le=0.9999, description="Smoothing factor, per point.")]


@routes.get("/series", "application/octet-stream")
def series(
    view: View,
    keys: _Keys,
    x: _Axis = "steps",
    from_: _From = None,
    to: _To | None = None,
    px: _Pixels = 800,
    smooth: _Smooth = 0.0,
) -> bytes:
    """Curves as binary columns: see the text on `series` in the reference."""
    pixels = fitting_pixels(px, len(keys))
    with view.reader.snapshot():
        curves = [_curve(view, key, x, from_, to, pixels) for key in keys]
    return pack([text_of(key) for key in keys], curves, x, smooth)


def text_of(key: CurveKey) -> str:
    """A key as it is written in requests and answers."""
    group, name = (quote(part, safe=_AS_BROWSERS) for part in (key.group, key.name))
    text = ":".join((str(key.trial_id), group, name))
    return f"{text}:batches" if key.per_batch else text


def _curve(
    view: View, key: CurveKey, x: str, low: float | None, high: float | None, pixels: int
) -> Curve:
    family, _, name = x.partition(":")
    if family == "metric":
        group, _, metric = name.partition(".")
        (curve,) = view.reader.metrics.curves([key], (group, metric), low, high, pixels)
        return curve
    (curve,) = view.reader.metrics.curves([key], _AXES[x], low, high, pixels)
    if x == "epochs" and not len(curve.x):  # reported only by validations, for example
        for group in ("validation", "training"):
            (curve,) = view.reader.metrics.curves([key], (group, "epochs"), low, high, pixels)
            if len(curve.x):
                break
    return curve
