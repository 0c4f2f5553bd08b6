"""Which GPUs this process may use, without importing a framework."""

from __future__ import annotations

import csv
import logging
import os
import shutil
import subprocess

logger = logging.getLogger("determined")

_TIMEOUT_SECONDS = 30


def get_gpu_uuids() -> list[str]:
    """Return the ids of the visible GPUs, none where the vendor's tool is missing.

    `CUDA_VISIBLE_DEVICES` (or `ROCR_VISIBLE_DEVICES`) limits and orders the answer as it does for
    CUDA itself: the list ends at the first entry that names no device.
    """
    uuids = _lines("nvidia-smi", "--query-gpu=uuid", "--format=csv,noheader")
    if uuids:
        return _visible(uuids, os.environ.get("CUDA_VISIBLE_DEVICES"))
    rows = list(csv.DictReader(_lines("rocm-smi", "--showuniqueid", "--csv")))
    uuids = [row["Unique ID"] for row in rows if row.get("Unique ID")]
    return _visible(uuids, os.environ.get("ROCR_VISIBLE_DEVICES"))


def get_gpu_processes() -> dict[str, list[int]]:
    """Return the pids that compute on each NVIDIA GPU, by its id; idle GPUs are left out.

    In a container these are pids of the machine, or none at all.
    """
    found: dict[str, list[int]] = {}
    for line in _lines("nvidia-smi", "--query-compute-apps=gpu_uuid,pid", "--format=csv,noheader"):
        uuid, _, pid = line.partition(",")
        if pid.strip().isdigit():
            found.setdefault(uuid.strip(), []).append(int(pid))
    return found


def _lines(tool: str, *arguments: str) -> list[str]:
    executable = shutil.which(tool)
    if executable is None:
        return []
    try:
        answer = subprocess.run(
            [executable, *arguments],
            check=True,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_SECONDS,
        )
    except (OSError, subprocess.SubprocessError) as error:
        logger.warning("%s is installed but cannot list GPUs: %s", tool, error)
        return []
    return [line.strip() for line in answer.stdout.splitlines() if line.strip()]


def _visible(uuids: list[str], limit: str | None) -> list[str]:
    if limit is None:
        return uuids
    chosen: list[str] = []
    for entry in (word.strip() for word in limit.split(",")):
        if entry.isdigit():
            matches = uuids[int(entry) : int(entry) + 1]
        else:
            matches = [uuid for uuid in uuids if entry and uuid.startswith(entry)]
        if len(matches) != 1:
            break
        chosen += matches
    return chosen
