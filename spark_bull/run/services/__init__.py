"""What runs beside workers: promoter, rescuer, collector, guards and recovery.

service.py is the thread of each, and its rounds, which also finish interrupted writes. collector.py and
queue_collector.py find results, admission.py says when a batch begins. promoter.py runs what is in guarding.py (guards,
ageing), and rescues stalled jobs.
"""
