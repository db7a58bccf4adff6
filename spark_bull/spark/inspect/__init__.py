"""Batch reads of jobs, events and the other views."""
