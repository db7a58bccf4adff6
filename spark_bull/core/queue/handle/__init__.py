"""What all operations on a queue share.

handle.py: the handle of a queue, which runs scripts. walk.py: the ids of a state in order. admission.py: whether a
queue takes jobs, and replicas have them. report.py: what is told about a job.
"""
