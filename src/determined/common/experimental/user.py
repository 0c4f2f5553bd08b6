"""An older import path of `determined.experimental.client`."""

from determined.experimental._client.user import User

__all__ = ["User"]
