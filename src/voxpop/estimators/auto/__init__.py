"""Auto: compare noise models on left-out answers, average the best, and calibrate."""
