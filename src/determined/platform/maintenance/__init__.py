"""Whole homes: import experiments of another one, rebuild a damaged store."""
