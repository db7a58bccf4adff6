"""Finds queues, and measures what they do.

find.py: names of queues, and which dialect and workers they have. activity.py: numbers of the last minute, and filters
by them. stats.py: times, rates and numbers of jobs by name.
"""
