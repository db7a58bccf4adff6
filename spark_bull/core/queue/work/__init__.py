"""Claims and settles jobs, and finds stalled ones."""
