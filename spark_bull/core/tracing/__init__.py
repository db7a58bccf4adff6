"""Spans of dispatched and processed jobs."""
