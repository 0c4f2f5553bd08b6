"""TensorBoard event files: what is written, and where.

Uploading is `core`'s. Read `_series.py` for tags and steps, `_events.py` for the fast writer.
"""

from determined.tensorboard.metric_writers import BatchMetricWriter, MetricWriter
from determined.tensorboard.util import get_base_path, get_rank_aware_path

__all__ = ["BatchMetricWriter", "MetricWriter", "get_base_path", "get_rank_aware_path"]
