"""`spark-bull doctor`: checks this machine, Redis and queues, and repairs what can be repaired safely."""
