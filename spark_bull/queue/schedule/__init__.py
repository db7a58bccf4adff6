"""Schedules: single ones, and those of a write."""
