"""Adds jobs and flows, and registers and rolls forward writes."""
