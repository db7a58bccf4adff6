"""Job schedulers: single ones, and those of a write."""
