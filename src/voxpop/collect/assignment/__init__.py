"""Assignments: which worker answers which task."""
