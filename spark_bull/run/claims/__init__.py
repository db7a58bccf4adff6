"""Claims of a slot: how many jobs, their locks and signals.

lock_keeper.py extends locks and says which are lost; waits.py waits for jobs, and lets other queues go on
when one is damaged; claimer.py claims for a stream of batches.
"""
