"""The metrics of queues for Prometheus."""
