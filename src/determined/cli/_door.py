"""The platform as commands see it: found, woken if it has work to do, and closed at the end."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from determined.errors import DeterminedError

if TYPE_CHECKING:
    from determined.platform.service import Service


@contextlib.contextmanager
def platform(*, wake: bool = True) -> Iterator[Service]:
    """Yield the service of the user's home; unfinished work gets a supervisor if it has none."""
    from determined.platform.home import Home
    from determined.platform.service import Service

    service = Service(Home.find())
    try:
        if wake:
            with contextlib.suppress(
                OSError, DeterminedError
            ):  # where nothing can be written, look all the same
                service.wake_if_needed()
        yield service
    finally:
        service.close()
