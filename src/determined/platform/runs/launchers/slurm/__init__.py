"""Runs as jobs of Slurm: one job per run, ordered and placed by Slurm.

    commands.py    `sbatch`, `squeue`, `scancel`, `sinfo`, and whether they were answered
    cluster.py     jobs and partitions as Slurm listed them last
    submission.py  the arguments and the script of a job; pure
    shared.py      the folder that this machine and the nodes of a run share
    node.py        on a node: starts the keeper there, and passes requests on
    fates.py       how a run ended, from the state of its job; pure
    launcher.py    the launcher: submits jobs, and copies files home in pieces

Nothing of ours runs on nodes but the jobs themselves. Read `launcher.py` first.
"""
