"""Metric reports as TensorBoard scalars, through any writer.

`base.py` holds the interface and the rules; `pytorch.py` needs torch and is imported by name.
"""

from determined.tensorboard.metric_writers.base import BatchMetricWriter, MetricWriter

__all__ = ["BatchMetricWriter", "MetricWriter"]
