"""What writes pages and pictures of the documentation; tests compare pages with what is written.

    python -m tools.api_reference         entries of classes and functions in docs/reference
    python -m tools.client_reference      docs/reference/client.md
    python -m tools.command_reference     docs/reference/commands.md
    python -m tools.config_reference      docs/reference/configuration.md and the JSON schema
    python -m tools.original_commands     docs/reference/original_commands.md
    python -m tools.llms_txt              docs/llms.txt, the list of pages for language models
    python -m tools.dashboard_pictures    pictures of the dashboard in docs/images
    python -m tools.fork_picture          the picture of a run and its forks there
    python -m tools.demo_recording        docs/images/demo.svg, the demo in a terminal

`command_tree.py` lists the commands of `det`, also for tests. Figures of measurements are written
by `benchmarks`.
"""
