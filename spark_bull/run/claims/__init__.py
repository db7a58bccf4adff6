"""Claims of a slot: how many jobs, their locks and signals."""
