"""Pure rules: a value in, a value out, without files, clocks or global random state."""
