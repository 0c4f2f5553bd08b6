"""The platform's records: one SQLite file in the home. All SQL of the project is in this package.

Only the supervisor uses `Writer`: one transaction per tick, through the methods of
`write/transaction.py` (read that first). Anyone may use `Reader`, and `send_command` to ask the
supervisor for something. Logs, code and checkpoints are files elsewhere.
"""

from determined._contracts.retention import Retention
from determined.store._connection import is_made, refuse_newer
from determined.store._identity import Identity, Standing
from determined.store._maintenance import backup, check, find_damage
from determined.store._records import (
    PROFILER_GROUPS,
    TERMINAL_STATES,
    Checkpoint,
    Command,
    Deletion,
    Event,
    Experiment,
    Fork,
    JournalPosition,
    Model,
    ModelVersion,
    NewExperiment,
    NewTrial,
    Project,
    RatedCheckpoint,
    Report,
    Run,
    Samples,
    SearchStep,
    Trial,
    Workspace,
    columns_of,
)
from determined.store.read.changes import Changed, ChangeWatch, NewPoints, Position
from determined.store.read.listing import ExperimentRow, RunSpan, Tables, TrialPoint
from determined.store.read.pages import (
    CheckpointFilter,
    Cursor,
    ExperimentFilter,
    Order,
    Page,
    TrialFilter,
)
from determined.store.read.reader import Reader
from determined.store.read.table_filters import (
    STOPPED,
    Condition,
    Slice,
    TableFilter,
    TrialTableFilter,
    stopped_early,
)
from determined.store.series.curves import Curve, CurveKey
from determined.store.series.summary import Summary
from determined.store.write.importing import Imported, OtherStore
from determined.store.write.ingest import AcceptedRecord, is_decisive
from determined.store.write.ownership import is_inside, is_storage_inside
from determined.store.write.registry import Registry
from determined.store.write.relocation import Relocation
from determined.store.write.restoration import READ_FROM_JOURNALS, Restoration
from determined.store.write.salvage import set_aside
from determined.store.write.transaction import Transaction
from determined.store.write.writer import Writer, send_command

__all__ = [
    "PROFILER_GROUPS",
    "READ_FROM_JOURNALS",
    "TERMINAL_STATES",
    "ChangeWatch",
    "Changed",
    "Checkpoint",
    "CheckpointFilter",
    "Command",
    "Cursor",
    "Deletion",
    "Curve",
    "CurveKey",
    "Event",
    "Experiment",
    "ExperimentFilter",
    "ExperimentRow",
    "AcceptedRecord",
    "Fork",
    "Identity",
    "Imported",
    "JournalPosition",
    "Model",
    "ModelVersion",
    "NewExperiment",
    "columns_of",
    "NewPoints",
    "NewTrial",
    "Order",
    "OtherStore",
    "Page",
    "Position",
    "Project",
    "RatedCheckpoint",
    "Reader",
    "Registry",
    "Relocation",
    "Report",
    "Restoration",
    "Retention",
    "Run",
    "Samples",
    "SearchStep",
    "RunSpan",
    "Slice",
    "Standing",
    "Summary",
    "TableFilter",
    "Tables",
    "Transaction",
    "Trial",
    "TrialFilter",
    "TrialPoint",
    "Workspace",
    "Writer",
    "backup",
    "check",
    "find_damage",
    "is_decisive",
    "is_inside",
    "is_storage_inside",
    "is_made",
    "refuse_newer",
    "send_command",
    "set_aside",
    "STOPPED",
    "stopped_early",
    "Condition",
    "TrialTableFilter",
]
