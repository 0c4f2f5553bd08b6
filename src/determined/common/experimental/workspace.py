"""An older import path of `determined.experimental.client`."""

from determined.experimental._client.workspace import ResourcePool, Workspace

__all__ = ["ResourcePool", "Workspace"]
