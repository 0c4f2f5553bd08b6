"""An older import path of `determined.experimental.client`."""

from determined.experimental._client.determined import Determined

__all__ = ["Determined"]
