"""Reads and counts jobs, their children and dependencies."""
