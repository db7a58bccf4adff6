"""The metrics of queues for Prometheus.

collect.py reads the numbers, families.py writes them as text, server.py serves them.
"""
