"""Reads, waits for and publishes the events of a queue."""
