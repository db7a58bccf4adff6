"""Jobs, queues, outcomes and limits as plain Python values.

jobs.py and queues.py have the public types. outcomes.py has what became of claimed jobs, and the reasons for a lost
lock. limits.py has what workers may claim, and how many slots a backlog needs. guards.py has the condition of a guard.
"""
