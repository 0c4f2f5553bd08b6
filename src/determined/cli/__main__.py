"""`python -m determined.cli`, where the command `det` is not on the path."""

from determined.cli._main import main

main()
