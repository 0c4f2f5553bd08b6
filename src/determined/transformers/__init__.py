"""Training by `transformers.Trainer` as a trial: one callback. Needs the extra `transformers`.

What other callbacks need as well is in `determined._loops`. Read `_callback.py` first.
"""

try:
    import transformers as _transformers  # noqa: F401
except ImportError as error:
    raise ImportError(
        f"determined.transformers needs transformers, which cannot be imported ({error}): "
        'install it with `pip install "determined-pytorch[transformers]"`.'
    ) from error

from determined.transformers._arguments import get_ds_config_path_from_args
from determined.transformers._callback import DetCallback

__all__ = ["DetCallback", "get_ds_config_path_from_args"]
