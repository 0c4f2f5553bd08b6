import argparse
import os

import mylib

import determined as det

parser = argparse.ArgumentParser()
parser.add_argument("--name")
assert parser.parse_args().name == "two words"
assert (os.environ["HOOK_VAR"], os.environ["CPU_ONLY"]) == ("hooked", "1")
with det.core.init() as context:
    for step in (1, 2, 3):
        context.train.report_training_metrics(
            steps_completed=step, metrics={"loss": 1 / step}, batch_metrics=[{"loss": 0.1}]
        )
    context.train.report_metrics("test", 3, {"f1": 0.5})
    context.train.report_validation_metrics(steps_completed=3, metrics={"loss": mylib.VALUE})
