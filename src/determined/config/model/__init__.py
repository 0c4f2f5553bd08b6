"""Every key of a configuration, its type, default and description; `experiment.py` first."""
