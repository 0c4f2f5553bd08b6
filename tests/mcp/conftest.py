"""Experiments in a home of their own."""

from tests.support.lab import lab

__all__ = ["lab"]
