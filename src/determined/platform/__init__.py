"""The embedded platform: experiments, their search, their runs. No torch, no server to install.

Clients (command line, Python client, dashboard) call `service/`; the supervisor does the work. The
pure parts are `search/` and `rules/`: read those first. The training library is not imported from
here: the two share only journals and run folders.

    rules/         pure rules: scheduler, states, lifecycle, gc policy
    search/        pure: events in, actions out
    homes/         a home on disk: its files, code snapshots, disk usage
    machines/      what runs are scheduled on: slots, nodes, the cluster
    runs/          a run on disk and its processes: keeper/, launchers/, warm/
    queries/       what clients ask: comparisons, outcomes, logs, downloads
    supervisor/    the process that decides: loop, live state, commands/, background/, searches/
    service/       the verbs of every client
    maintenance/   whole homes: import, rebuild
    tensorboards/  TensorBoard over stored trials
    debugging/     one trial in a terminal, one batch, a report to send
"""
