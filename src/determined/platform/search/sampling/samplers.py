"""Which model stands behind the name of a sampler."""

from __future__ import annotations

from determined.platform.search.sampling.model import Model
from determined.platform.search.space import Space


def build_model(sampler: str, space: Space) -> Model:
    """Return the model of a sampler; only its own packages are imported, and only now."""
    if sampler == "auto":
        from determined.platform.search.sampling.auto_model import AutoModel

        return AutoModel(space)
    from determined.platform.search.sampling.optuna_model import OptunaModel

    return OptunaModel(sampler, space)
