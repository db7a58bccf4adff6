"""Helpers of the tests: the real Node libraries, dumps of queues, job lists, waiting."""
