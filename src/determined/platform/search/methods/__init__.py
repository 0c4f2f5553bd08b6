"""The search methods: `exhaustive` (single, random, grid), `halving`, `custom` (a user's own).

Each follows the protocol `Method` of `searcher.py`. Read `exhaustive.py` first, then `bracket.py`.
"""
