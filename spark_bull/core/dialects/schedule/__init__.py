"""The times of job schedulers: cron patterns and intervals.

cron.py computes the next time of a pattern; repeating.py has what dialects share; checks.py what is allowed.
"""
