"""Baselines: averages, robust means, truth discovery and rating standards."""
