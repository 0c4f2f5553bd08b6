"""How the ranks of a job find each other, talk, and take steps together; `group.py` first."""
