"""When a checkpoint is saved, how it is written, and which older ones go."""
