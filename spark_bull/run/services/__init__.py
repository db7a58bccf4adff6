"""What runs beside workers: promoter, rescuer, collector, guards and recovery.

service.py is the thread of each. collector.py and queue_collector.py find results, admission.py says when a batch
begins. promoter.py runs what is in guarding.py (guards, ageing), and recovery.py (interrupted and lost writes), and
rescues stalled jobs.
"""
