"""The search methods: single, random, grid, successive halving, a user's own."""
