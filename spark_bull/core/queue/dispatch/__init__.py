"""Adds jobs and flows, and registers and rolls forward writes.

add.py and flows.py add at once. stages.py, registration.py and roll_forward.py are the steps of a write, by the kinds
in write_records.py, and roll_forward.py finds writes that Redis has lost; written.py reads the jobs of a write.
"""
