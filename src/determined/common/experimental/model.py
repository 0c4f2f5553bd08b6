"""An older import path of `determined.experimental.client`."""

from determined.experimental._client.model import Model, ModelOrderBy, ModelSortBy, ModelVersion

__all__ = ["Model", "ModelOrderBy", "ModelSortBy", "ModelVersion"]
