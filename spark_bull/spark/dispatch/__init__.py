"""Writes that add jobs: what tasks encode, and what the driver plans and commits."""
