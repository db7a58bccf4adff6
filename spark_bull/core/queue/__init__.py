"""One queue, without Spark: a room per verb, and `BullQueue`, which has all of them.

The methods of `BullQueue` are in adding.py, reading.py, changing.py, managing.py and scheduling.py, a class each. The
scripts of a dialect are run here only, by `QueueHandle.run`: the contract at the head of each says what it does. One
call handles at most one chunk. A call that is repeated after a lost reply has the same effect: by what it does, or by a
stored reply, a receipt. For that, the caller or `run_once` names the call.
"""
