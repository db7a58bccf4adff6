"""Claims of a slot: how many jobs, their locks and signals.

lock_keeper.py extends locks and says which are lost; job_signal.py waits for jobs; damage.py lets other queues go on
when one is damaged; claimer.py and batch_size.py claim for a stream of batches.
"""
