"""Payloads and results that are encrypted, or stored outside of Redis.

All verbs call `QueueHandle.sealed` and `opened`, which ask policy.py. Stored objects are deleted with their jobs by
core/queue/jobs/objects.py, and when no job has them by core/queue/manage/leftovers.py.
"""
