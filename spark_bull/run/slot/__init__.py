"""The loops of a slot, its state, statistics and end."""
