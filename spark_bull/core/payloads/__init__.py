"""Payloads and results that are encrypted, or stored outside of Redis."""
