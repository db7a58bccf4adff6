"""Writes with mode=limits: rows set and remove limits of groups of jobs."""
