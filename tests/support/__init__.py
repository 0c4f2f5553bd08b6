"""Helpers that tests of several packages share; those of one package lie beside its tests.

Trials and scripts that tests train:
    trials           a small trial whose numbers can be worked out on paper, and a log of all calls
    line_trial       a trial as users write it: `script.py` with the class, `train.py` that fits it
    resumable        a trial in which everything that a checkpoint must carry matters
    exact            a trial that shows any difference between an interrupted run and another
    ranked           a trial for any number of ranks, trained on real processes
    odd_ranks        ordinary and odd ways to train on several ranks
    sharded          a trial whose model is sharded, or not, for comparisons
    elastic          a script whose ranks die now and then, for torchrun
    managed          a script as the platform starts it
    tracked          scripts that are started manually, with tracking on
    failing          a script that goes wrong at a given point
    signalled        a script that waits for a signal in one of its phases
    forked           a trial to fork: small, exact, and with a schedule
    adapters         a small adapter that is trained on a large frozen base, as in LoRA
    fine_tuning      tiny models for `transformers.Trainer`, and a script that trains them
    lightning_modules  a small module for Lightning, and a script that trains it
    reports          what a training process reports, kept for a look
    planted          a small run with many knobs, to plant differences with
    victims          four kinds of trials, with a diary of each batch, that faults must not change
    old_trial        trials as users of old releases wrote them
    stuck            hangs where no signal handler written in Python gets a turn

Data and states:
    cut              read training data in one go, or in the pieces of several processes
    cut_runs         train unbroken and in pieces, and compare the ends
    orders           datasets with random contents, loaders with every kind of order
    remembering      datasets and a sampler with a state of their own
    states           states of every kind for property tests, and when two are the same
    quantized        a tensor subclass that knows hardly any operation
    old_checkpoints  checkpoints in the layouts of old releases
    hostile          checkpoints by people who mean harm
    pickle_attacks   pickles that fooled restricted readers somewhere
    memory_storage   an object store in memory
    retention_table  the example of the retention rules

Homes, runs and clusters of the platform:
    lab              a home of a test: experiments on real processes, and proof that none is left
    runs             folders of runs, waiting for them, and proof that nothing is left
    searches         short searches for the lab
    saving           an experiment that saves, and what became of its checkpoints
    tasks            files of a task, as a platform leaves them for a process
    logs             logs of runs without what differs from run to run
    old_homes        homes as earlier schemas left them
    failing_disk     disks whose `fsync` fails or waits
    preloaded        libraries between a process and the system (LD_PRELOAD), compiled when needed
    fake_gpus        GPUs that are not there: a driver's library, compiled, and files of the kernel
    full_home        a home on a disk that fills up
    clusters         a Ray cluster of several nodes on this machine
    slurm            a private Slurm of two nodes on this machine
    cluster_lab      a lab whose runs go to a cluster
    networks         a Ray cluster of machines whose network can be cut

Processes, disks and networks that fail:
    workers          run a function on several ranks: real processes, or threads of this one
    rank_pool        ranks that stay and run one function after another, for property tests
    forks            children of this process that may be killed
    kill_points      kills at named events, for processes that a test starts
    faults           how much of the fault tests to run, and where
    loader_waits     loader workers that know which batch the main process waits for
    leftovers        what a run may leave behind in its process: nothing
    power_cut        what a power cut may leave of the files that a process wrote
    store_log        what a power cut may leave of a store
    flaky_proxy      an HTTP server that fails on demand
    forwarder        a port that leads to another one for as long as a test wants
    other_user       another user of this machine

Commands and terminals:
    terminal         run a script with pipes or a real terminal as its standard streams
    hostile_calls    calls of real commands with arguments that hardly fit
    messages         the table of messages in the docs: each row is shown by a test
    waiting          wait for a condition with a generous deadline
"""
