"""The seed paper: its figures, tables and claims reproduced, and a demonstration."""
