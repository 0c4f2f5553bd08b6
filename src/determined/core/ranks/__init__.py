"""How the ranks of a job find each other, transcript, and take steps together; `group.py` first."""
