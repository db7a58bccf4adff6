"""What all operations on a queue share.

handle.py: the handle of a queue. verbs.py: the scripts of one job. walk.py: the ids of a state in order. admission.py:
whether a queue takes jobs, and replicas have them. report.py: what is told about a job.
"""
