"""What trials are made of, each part by the name that a description of the trial shows."""
