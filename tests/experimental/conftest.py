"""The lab for all tests here."""

from tests.support.lab import lab

__all__ = ["lab"]
