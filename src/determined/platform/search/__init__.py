"""Search: events in, actions out; no clock, no files, no global randomness.

    searcher.py      one experiment's search: dispatches events, and can be replayed
    search_state.py  its trials, and how methods create, stop, pause and resume them
    events.py        events and actions, as plain data
    settings.py      the `searcher` section of a configuration
    space.py         the hyperparameters that are searched
    methods/         how to decide: single, random, grid, successive halving, a user's own
    sampling/        which values come next: random draws, models
    processes/       the only modules that start processes: a user's method, a model
    simulation/      searches in virtual time

Trials are run elsewhere: by `supervisor/` and `runs/`. Read `searcher.py` first, then
`methods/bracket.py`.
"""
