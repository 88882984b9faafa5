"""What is assumed: levels of noise, what a worker's answer may do, and what follows from it."""
