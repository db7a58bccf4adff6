"""Job schedulers: single ones, and the schedulers of a write."""
