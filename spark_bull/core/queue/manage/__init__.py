"""Changes, cancels and removes jobs, and sets the limits of groups.

changes.py: many jobs at a time, also a single one. manage.py: removals, and the errors of refusals. leftovers.py: what
no state and no job has any more. cancel.py: requests that the slots read.
"""
