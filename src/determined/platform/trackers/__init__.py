"""What other trackers have recorded comes in, and what is recorded here goes out as files.

    foreign_run.py                       a run of another tracker, as far as it can be kept here
    tensorboard.py mlflow.py trackio.py  find such runs; they only read
    importing.py                         writes them: files are staged, then one transaction per run
    export.py                            experiments as CSV or Parquet

Another home's experiments come in by `maintenance/`. Read `importing.py` first.
"""
