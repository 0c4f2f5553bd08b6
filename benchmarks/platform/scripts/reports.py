"""A trial that only reports, through the Core API.

Variables: REPORTS, how many; PAUSE, the seconds before each.
"""

import os
import time

from determined import core

with core.init() as context:
    for step in range(1, int(os.environ.get("REPORTS", "10")) + 1):
        time.sleep(float(os.environ.get("PAUSE", "0")))
        context.train.report_validation_metrics(step, {"loss": 1 / step})
        if context.preempt.should_preempt():
            break
