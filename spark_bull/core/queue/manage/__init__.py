"""Changes, cancels and removes jobs, and sets the limits of groups.

manage.py: changes of many jobs at a time, removals, and the errors of refusals. bulk.py: one change of all jobs that a
condition selects. leftovers.py: what no state and no job has any more. cancel.py: requests that the slots read.
"""
