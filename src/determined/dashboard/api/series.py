"""Curves for charts."""

from __future__ import annotations

from determined.dashboard.endpoints.endpoints import Parameter, Routes
from determined.dashboard.endpoints.kinds import Choice, Many, Number, SeriesKey
from determined.dashboard.endpoints.parameters import PIXELS
from determined.dashboard.series import fitting_pixels, pack
from determined.dashboard.view import View
from determined.store import Curve, CurveKey

routes = Routes("series")

_AXES = {"steps": "steps", "wall": "time", "relative": "relative", "epochs": "epochs"}
_AS_BROWSERS = "!'()*"  # what encodeURIComponent leaves as it is, besides what `quote` does
_MOST_KEYS = 500


@routes.get(
    "/series",
    "application/octet-stream",
    keys=Parameter(
        Many(SeriesKey(), _MOST_KEYS, ";", 1),
        is_required=True,
        about="TRIAL:GROUP:NAME or TRIAL:GROUP:NAME:batches, parts percent-encoded, `;` between.",
    ),
    x=Parameter(Choice(tuple(_AXES), ("metric",)), "steps", about="Or `metric:GROUP.NAME`."),
    from_=Parameter(Number(), about="Only points with at least this x."),
    to=Parameter(Number(), about="Only points with at most this x."),
    px=PIXELS,
    smooth=Parameter(Number(0, 0.9999), 0.0, about="Smoothing factor, per point."),
)
def series(
    view: View,
    keys: list[tuple[int, str, str, bool]],
    x: str,
    from_: float | None,
    to: float | None,
    px: int,
    smooth: float,
) -> bytes:
    """Curves as binary columns: see the text on `series` in the reference."""
    wanted = [CurveKey(*key) for key in keys]
    pixels = fitting_pixels(px, len(wanted))
    with view.reader.snapshot():
        curves = [_curve(view, key, x, from_, to, pixels) for key in wanted]
    return pack([text_of(key) for key in wanted], curves, x, smooth)


def text_of(key: CurveKey) -> str:
    """A key as it is written in requests and answers."""
    from urllib.parse import quote

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
