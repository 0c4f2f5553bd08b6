"""What training processes say and the supervisor reads: append-only files of checked records.

Nothing here knows who writes or why, and nothing but the standard library is needed. Read
`_records.py` first (what can be said), then `_file.py` (how it stands in a file), then
`_control.py` (what the platform says back).
"""

from determined.journal._columns import BatchColumns, Column
from determined.journal._control import CONTROL_FILE, Control
from determined.journal._file import (
    MAX_RECORD_BYTES,
    Damage,
    JournalReader,
    JournalWriter,
    new_journal_path,
)
from determined.journal._records import (
    Alert,
    Checkpoint,
    CheckpointAnnounced,
    CheckpointDeleted,
    EarlyExit,
    Heartbeat,
    Metadata,
    Metrics,
    PreemptionAcknowledged,
    Progress,
    Record,
    RunStarted,
    Status,
    SystemSamples,
    TaskUsing,
    Unknown,
    decode,
    encode,
)

__all__ = [
    "CONTROL_FILE",
    "MAX_RECORD_BYTES",
    "Alert",
    "BatchColumns",
    "Checkpoint",
    "CheckpointAnnounced",
    "CheckpointDeleted",
    "Column",
    "Control",
    "Damage",
    "EarlyExit",
    "Heartbeat",
    "JournalReader",
    "JournalWriter",
    "Metadata",
    "Metrics",
    "PreemptionAcknowledged",
    "Progress",
    "Record",
    "RunStarted",
    "Status",
    "SystemSamples",
    "TaskUsing",
    "Unknown",
    "decode",
    "encode",
    "new_journal_path",
]
