"""Answers that do not fit into memory: in parts on disk, fitted one by one or on a cluster."""
