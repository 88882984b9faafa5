"""What comes out: estimates, intervals, checks, and what to look at."""
