"""Writes with mode=manage: rows change jobs."""
