"""Kernels: the messages of a block of tasks to their workers, as pure functions on arrays.

Shapes in this package: n tasks of a block, l answers of each, K levels, d coordinates,
C = K**l configurations of levels, Q nodes of an integral. ``incoming[i, u, k]`` is the log
message from worker u to task i, up to a constant per (i, u).
"""
