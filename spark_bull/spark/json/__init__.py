"""Payloads and columns of jobs as JSON texts and typed values."""
