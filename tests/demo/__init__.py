"""Tests of `python -m determined.demo`."""
