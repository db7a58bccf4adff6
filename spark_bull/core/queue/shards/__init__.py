"""Logical queues that are divided into several."""
