"""Whole homes: import experiments of another one, rebuild a damaged store.

Backup and checks of the store itself are in `store/`. Read `rebuild/rebuild.py` first.
"""
