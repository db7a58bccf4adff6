"""Finds queues, and measures what they do."""
