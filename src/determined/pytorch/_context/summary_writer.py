"""Torch's TensorBoard writer, which is imported only when a trial asks for it."""

from __future__ import annotations

import os
import pathlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter


def open_summary_writer(directory: pathlib.Path) -> SummaryWriter:
    """Return a writer of event files in a directory, whatever bytes its name is made of."""
    from torch.utils.tensorboard import SummaryWriter

    name = str(directory)
    try:
        name.encode()
    except UnicodeEncodeError:  # TensorBoard takes UTF-8 only
        name = f"/proc/self/fd/{os.open(directory, os.O_RDONLY)}"  # open as long as the process
    return SummaryWriter(name)
