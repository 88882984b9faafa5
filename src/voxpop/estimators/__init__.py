"""Estimators: who turns answers into a result; the registry lists them, ``aggregate`` picks one."""
