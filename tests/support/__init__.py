"""What the tests of every layer share: the real Node libraries, dumps of queues, job lists, waiting."""
