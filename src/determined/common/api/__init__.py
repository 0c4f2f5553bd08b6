"""Older import paths: `errors`. There is no server, so there is nothing else to call."""
