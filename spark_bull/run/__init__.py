"""Runs jobs without Spark: claims, slots, workers in threads and processes, and the services beside them."""
