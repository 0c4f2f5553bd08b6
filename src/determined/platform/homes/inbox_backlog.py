"""What scripts left in the inbox and no supervisor has read yet."""

from __future__ import annotations

import os
from collections.abc import Callable

from determined.journal import InboxItem, item_names
from determined.platform.homes.home import Home


class InboxBacklog:
    """The journals of an inbox as they are at this moment: what is added later does not count."""

    def __init__(self, home: Home) -> None:
        found = [InboxItem(home.inbox / name) for name in item_names(home.path)]
        items = [item for item in found if os.access(item.journal, os.R_OK)]
        self._sizes = {item: item.size for item in items}
        self.has_ended = any(not item.is_held for item in items)
        """Whether a process is gone, so that its folder is to be put away."""

    def is_unread(self, offset_of: Callable[[str], int | None]) -> bool:
        """Whether anything of it is not read, given how far journals were read."""
        self._sizes = {
            item: size
            for item, size in self._sizes.items()
            if (offset_of(str(item.journal)) or 0) < size
            and item.size  # 0: it was moved out of the inbox
        }
        return bool(self._sizes)
