"""Jobs, queues, outcomes and limits as plain Python values.

jobs.py and queues.py have the public types; outcomes.py what became of claimed jobs, with the reasons for a lost lock;
limits.py what workers may claim, and how many slots a backlog needs; guards.py the condition of a guard.
"""
