"""Logs as numbered lines: pages, merged runs, searches."""
