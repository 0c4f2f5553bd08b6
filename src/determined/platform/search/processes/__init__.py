"""Methods and models that run in processes of their own, so that a crash stays contained."""
