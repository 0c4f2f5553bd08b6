"""Train PyTorch models. Light to import: `determined.pytorch` brings torch, this does not."""

from determined._version import __version__

__all__ = ["__version__"]
