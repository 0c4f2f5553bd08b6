"""The choices that users pass to core, by member or by value string."""

from __future__ import annotations

import enum


class PreemptMode(enum.Enum):
    """Who may call `PreemptContext.should_preempt`, and how the ranks learn the answer."""

    WorkersAskChief = "WORKERS_ASK_CHIEF"
    """Every rank calls, in step, and gets the same answer."""
    ChiefOnly = "CHIEF_ONLY"
    """Only the chief calls."""
    WorkersAskMaster = "WORKERS_ASK_MASTER"
    """Any rank calls at any time; answers are not synchronised."""


class SearcherMode(enum.Enum):
    """Who may call `SearcherContext.operations`."""

    WorkersAskChief = "WORKERS_ASK_CHIEF"
    ChiefOnly = "CHEIF_ONLY"  # the misspelt value is part of the published API

    @classmethod
    def _missing_(cls, value: object) -> SearcherMode | None:
        return cls.ChiefOnly if value == "CHIEF_ONLY" else None


class TensorboardMode(enum.Enum):
    """Whether TensorBoard files are managed automatically or by the caller."""

    AUTO = "AUTO"
    MANUAL = "MANUAL"


class EarlyExitReason(enum.Enum):
    """Why a trial ends before its planned length."""

    INVALID_HP = "EXITED_REASON_INVALID_HP"
    USER_REQUESTED_STOP = "EXITED_REASON_USER_REQUESTED_STOP"


class Unit(enum.Enum):
    """The unit of a length in the experiment configuration."""

    EPOCHS = "EPOCHS"
    RECORDS = "RECORDS"
    BATCHES = "BATCHES"
