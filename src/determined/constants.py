"""Constants under the path by which existing code imports them."""

from __future__ import annotations

import os

INTER_TRAIN_PROCESS_COMM_PORT_1 = int(os.environ.get("INTER_TRAIN_PROCESS_COMM_PORT_1") or 12360)
INTER_TRAIN_PROCESS_COMM_PORT_2 = int(
    os.environ.get("INTER_TRAIN_PROCESS_COMM_PORT_2") or INTER_TRAIN_PROCESS_COMM_PORT_1 + 16
)
C10D_PORT = int(os.environ.get("C10D_PORT") or 29400)
MAX_SLOTS_PER_AGENT = 16
"""How far apart the ports of two trials on one machine were; here each run gets free ones."""
