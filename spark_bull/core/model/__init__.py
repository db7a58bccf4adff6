"""Jobs, queues, outcomes and limits as plain Python values.

jobs.py and queues.py have the public types; outcomes.py what became of claimed jobs, with the reasons for a lost lock;
limits.py what workers may claim; guards.py the condition of a guard; slots.py how many slots a backlog needs.
"""
