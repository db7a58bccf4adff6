"""Adds jobs and flows, and registers and rolls forward writes.

add.py and flows.py add at once. write_records.py (kinds of writes, and their stages), registration.py and
roll_forward.py are the steps of a write; roll_forward.py finds writes that Redis has lost; written.py reads jobs.
"""
