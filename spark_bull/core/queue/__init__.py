"""One queue, without Spark: a room per verb, and `BullQueue`, which has all of them.

The methods of `BullQueue` are in adding.py, reading.py, changing.py, managing.py and scheduling.py, a class each. In a
room, verbs.py has what Python sends to each script and how it reads the reply; the others say how the verb works.
"""
