"""Small things about the machine: files, syncing, signals of the kernel, terminals, notebooks."""
