"""Auto: compare noise models on left-out answers, choose, refit and calibrate."""
