"""What people see: report, plots and terminal."""
