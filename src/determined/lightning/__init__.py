"""Training by Lightning's `Trainer` as a trial: one callback. Needs the extra `lightning`.

Works for `lightning` and for `pytorch_lightning`. What other callbacks need as well is in
`determined._loops`. Read `_callback.py` first.
"""

from determined.lightning._callback import DetCallback

__all__ = ["DetCallback"]
