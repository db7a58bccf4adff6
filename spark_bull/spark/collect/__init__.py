"""Streaming reads of results and events."""
