"""Bounds: what could be reached at best, by oracles and exact sums."""
