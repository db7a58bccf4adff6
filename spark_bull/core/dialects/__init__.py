"""What differs between Bull 1, Bull and BullMQ: classes, fields, features, and how a dialect is detected.

bull.py and bullmq.py have a class each. terms.py has the delay of retries and when a job expires; encode/ jobs as the
scripts take them; schedule/ the times of job schedulers.
"""
