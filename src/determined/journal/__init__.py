"""What training processes report to the supervisor: append-only files of checksummed records.

Nothing here knows who writes or why, and only the standard library is needed. Read `_records.py`
first (the records), then `_file.py` (the file format), then `_control.py` (what the platform tells
a run) and `_inbox.py` (processes that the platform did not start).
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
from determined.journal._inbox import InboxItem, boot_id, item_names
from determined.journal._records import (
    Alert,
    Checkpoint,
    CheckpointAnnounced,
    CheckpointDeleted,
    EarlyExit,
    Ended,
    Environment,
    Heartbeat,
    Introduction,
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
    "Ended",
    "Environment",
    "Heartbeat",
    "InboxItem",
    "Introduction",
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
    "boot_id",
    "decode",
    "encode",
    "item_names",
    "new_journal_path",
]
