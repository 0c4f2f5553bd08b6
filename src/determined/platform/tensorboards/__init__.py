"""TensorBoard over stored trials, in a process of its own behind access control."""
