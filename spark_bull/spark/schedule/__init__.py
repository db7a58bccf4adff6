"""Writes with mode=schedule: rows create or change job schedulers."""
