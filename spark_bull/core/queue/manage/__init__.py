"""Changes, cancels and removes jobs, and sets the limits of a queue."""
