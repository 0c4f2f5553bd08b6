"""What a person sees of a run: a live display in a terminal or notebook, plain lines elsewhere."""

from __future__ import annotations

import collections
import contextlib
import datetime
import importlib.util
import math
import os
import sys
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from determined.pytorch._data.seed import forked_rng
from determined.pytorch._display.frame import Frame
from determined.util import is_numerical_scalar

if TYPE_CHECKING:
    from determined.pytorch._display.progress_live import LiveDisplay

_RATE_WINDOW_SECONDS = 30.0
_SECONDS_BETWEEN_LINES = 1.0
_NOT_METRICS = ("batches", "epochs")  # counters that reports carry along


class Progress:
    """Shows how a run goes, on standard error.

    It asks `position` when it draws, so that batches cost nothing; the methods are for reports.
    Plain lines look like `training batch=300/900 done=33% epoch=1/3 rate=812/s samples=25984/s
    left=0:00:01 loss=0.25`, at most one training line a second. No method raises or prints anything
    when standard error is closed.

    Args:
        enabled: Whether to show anything; by default yes, unless `DET_PROGRESS=off`.
        max_length_batches: Length of the run, if known.
        start: Batches trained before this run.
        epoch_length: Batches per epoch, if known.
        samples_per_batch: Samples that all ranks train in one batch, if known.
        best: The validation metric that decides, if any, and its best value so far.
        is_saving: Says whether a checkpoint is being written in the background.
        position: Says how many batches are trained; without it, as many as the last report said.
    """

    def __init__(
        self,
        enabled: bool | None = None,
        max_length_batches: int | None = None,
        start: int = 0,
        epoch_length: int | None = None,
        samples_per_batch: int | None = None,
        best: tuple[str | None, float | None] = (None, None),
        is_saving: Callable[[], bool] = lambda: False,
        position: Callable[[], int] | None = None,
    ) -> None:
        self._reported = start
        self._position_now = position
        self._start = start
        self._max_length = max_length_batches
        self._epoch_length = epoch_length
        self._samples_per_batch = samples_per_batch
        self._is_saving = is_saving
        self._status = "starting"
        self._training: dict[str, Any] = {}
        self._rates: dict[str, float] = {}
        self._validation: dict[str, Any] = {}
        self._validated_at: int | None = None
        self._metric, self._best = best
        self._best_at: int | None = None
        self._checkpoint = ""
        self._rate = _Rate(start)
        self._live: LiveDisplay | None = None
        self._line_due = -math.inf
        self._has_unsaid = False
        if enabled is None:
            enabled = os.environ.get("DET_PROGRESS", "").lower() not in ("off", "0", "false", "no")
        if enabled and _can_be_live():
            with forked_rng(0):  # rich draws from `random` when it is imported
                from determined.pytorch._display.progress_live import LiveDisplay

            with contextlib.suppress(OSError, ValueError):
                self._live = LiveDisplay(self._frame)
        self._is_plain = enabled and self._live is None
        if start:
            self._say("resumed", *self._position(), *self._best_pairs())

    @property
    def batches_trained(self) -> int:
        """How many batches are trained by now."""
        return self._reported if self._position_now is None else self._position_now()

    def training(
        self,
        batches_trained: int,
        metrics: Mapping[str, Any],
        rates: Mapping[str, float] | None = None,
    ) -> None:
        """Show a training report; `rates` are those of what the trial counts."""
        self._reported = batches_trained
        self._training = dict(metrics)
        self._rates = dict(rates or {})
        if self._rates:
            self._training.pop("tokens", None)  # their rate is shown
        self._status = "training"
        if self._is_plain:
            self._has_unsaid = True
            if time.monotonic() >= self._line_due:
                self._say_training()

    def status(self, text: str) -> None:
        """Show what the run is doing now, where there is a place for it."""
        self._status = text

    def validated(self, metrics: Mapping[str, Any], best: bool = False) -> None:
        """Show a validation; `best` says that none before was better."""
        self._validation = dict(metrics)
        self._validated_at = self.batches_trained
        if best and self._metric in self._validation:
            self._best, self._best_at = self._validation[self._metric], self.batches_trained
        pairs = self._best_pairs()
        if self._best_at is not None:
            pairs.append(("best_batch", str(self._best_at)))
        self._say("validation", *_numbers(metrics), *pairs)

    def checkpointed(self, uuid: str, batches_trained: int) -> None:
        """Show that the checkpoint of a batch is complete; training may be ahead of it by now."""
        self._checkpoint = f"{uuid}  at batch {batches_trained}"
        self._say("checkpoint", ("uuid", uuid), batch=batches_trained)

    def finish(self, summary: str = "", status: str = "finished") -> None:
        """End the display; `summary` stays as the last lines."""
        self._status = status
        is_silent = self._live is None and not self._is_plain
        self.close()
        if summary and not is_silent:
            _write(summary if summary.endswith("\n") else f"{summary}\n", _stream_of_results())

    def close(self) -> None:
        """End the display as it is. May be called again."""
        if self._live is not None:
            self._live.close()
            self._live = None
        elif self._is_plain:
            if self._has_unsaid:
                self._say_training()
            self._is_plain = False

    def _frame(self) -> Frame:
        speed = [f"{value} {unit}" for unit, value in self._speed()]
        speed += [f"{value} {unit}" for _, value, unit in self._counted()]
        if (left := self._left()) is not None:
            speed.append(f"{left} left")
        if self._start:
            speed.append(f"resumed at batch {self._start}")
        best = [] if self._best is None else _numbers({str(self._metric): self._best})
        return Frame(
            self._status,
            self.batches_trained,
            self._max_length,
            self._epoch(),
            tuple(speed),
            tuple(_numbers(self._training)),
            tuple(_numbers(self._validation)),
            self._validated_at,
            tuple(best),
            self._best_at,
            self._checkpoint,
            self._is_saving(),
        )

    def _epoch(self) -> str:
        if not self._epoch_length:
            return ""
        epoch = str(max(1, math.ceil(self.batches_trained / self._epoch_length)))
        if self._max_length is not None:
            epoch += f"/{math.ceil(self._max_length / self._epoch_length)}"
        return epoch

    def _speed(self) -> list[tuple[str, str]]:
        rate = self._rate.after(self.batches_trained)
        if not rate:
            return []
        speed = [("batches/s", _short(rate))]
        if self._samples_per_batch is not None:
            speed.append(("samples/s", _short(rate * self._samples_per_batch)))
        return speed

    def _counted(self) -> list[tuple[str, str, str]]:
        """Return the rates of what the trial counts: name, value, and its unit."""
        forms: dict[str, tuple[str, str, Callable[[float], str]]] = {
            "tokens_per_second": ("tokens", "tokens/s", _short),
            "flops_utilization": ("mfu", "of peak FLOPs", "{:.1%}".format),
            "peak_memory_bytes": ("memory", "GB at most", lambda size: f"{size / 1e9:.2f}"),
        }
        return [
            (name, form(self._rates[key]), unit)
            for key, (name, unit, form) in forms.items()
            if key in self._rates
        ]

    def _left(self) -> datetime.timedelta | None:
        rate = self._rate.after(self.batches_trained)
        if not rate or self._max_length is None:
            return None
        batches = max(0, self._max_length - self.batches_trained)
        return datetime.timedelta(seconds=math.ceil(batches / rate))

    def _position(self) -> list[tuple[str, str]]:
        pairs = []
        if self._max_length:
            pairs.append(("done", f"{min(1.0, self.batches_trained / self._max_length):.0%}"))
        if epoch := self._epoch():
            pairs.append(("epoch", epoch))
        return pairs

    def _best_pairs(self) -> list[tuple[str, str]]:
        if self._best is None:
            return []
        return _numbers({f"best_{self._metric}": self._best})

    def _say_training(self) -> None:
        self._has_unsaid = False
        self._line_due = time.monotonic() + _SECONDS_BETWEEN_LINES
        names = {"batches/s": "rate", "samples/s": "samples"}
        pairs = [(names[unit], f"{value}/s") for unit, value in self._speed()]
        suffixes = {"tokens": "/s", "memory": "GB"}
        pairs += [(name, value + suffixes.get(name, "")) for name, value, _ in self._counted()]
        if (left := self._left()) is not None:
            pairs.append(("left", str(left)))
        self._say("training", *self._position(), *pairs, *_numbers(self._training))

    def _say(self, what: str, *pairs: tuple[str, str], batch: int | None = None) -> None:
        if not self._is_plain:
            return
        if self._has_unsaid:
            self._say_training()
        of = "" if self._max_length is None else f"/{self._max_length}"
        words = [what, f"batch={self.batches_trained if batch is None else batch}{of}"]
        words += [f"{name}={value}" for name, value in pairs]
        self._is_plain = _write(" ".join(words) + "\n")


class _Rate:
    """Batches per second over the last half minute, pauses included."""

    def __init__(self, start: int) -> None:
        self._samples = collections.deque([(time.monotonic(), start)])

    def after(self, batches: int) -> float:
        samples = self._samples
        if batches != samples[-1][1]:
            samples.append((time.monotonic(), batches))
            while len(samples) > 2 and samples[1][0] < samples[-1][0] - _RATE_WINDOW_SECONDS:
                samples.popleft()
        (begin, first), (end, last) = samples[0], samples[-1]
        return (last - first) / (end - begin) if end > begin else 0.0


def _short(rate: float) -> str:
    return f"{rate:.3g}" if rate < 100 else f"{rate:.0f}"


def _numbers(metrics: Mapping[str, Any]) -> list[tuple[str, str]]:
    numbers = [
        (name, float(value))
        for name, value in metrics.items()
        if name not in _NOT_METRICS and is_numerical_scalar(value)
    ]
    return [(name, f"{n:.0f}" if n.is_integer() else f"{n:.4g}") for name, n in numbers]


def _can_be_live() -> bool:
    if "ipykernel" in sys.modules:
        return importlib.util.find_spec("ipywidgets") is not None
    try:
        is_terminal = sys.stderr.isatty()  # None without standard error, ValueError once closed
    except (AttributeError, ValueError):
        return False
    return is_terminal and os.environ.get("TERM", "dumb") != "dumb"


def _stream_of_results() -> Any:
    """Return where the last line goes: notebooks show standard error as if it were an error."""
    return sys.stdout if "ipykernel" in sys.modules else sys.stderr


def _write(text: str, stream: Any = None) -> bool:
    """Write to standard error, or another stream; False if nothing can read it."""
    stream = sys.stderr if stream is None else stream
    is_real = stream in (sys.__stderr__, sys.__stdout__) and stream is not None
    try:
        if is_real:
            # Past Python's buffer: text stuck there after a broken pipe makes the exit code 120.
            stream.flush()
            os.write(stream.fileno(), text.encode(stream.encoding, errors="replace"))
        else:
            stream.write(text)
            stream.flush()
    except (AttributeError, OSError, ValueError):
        return False
    return True
