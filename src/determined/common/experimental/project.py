"""An older import path of `determined.experimental.client`."""

from determined.experimental._client.project import Project

__all__ = ["Project"]
