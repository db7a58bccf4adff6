"""For tests of programs that process jobs: a Redis as a fixture of pytest, and jobs that run in the test itself."""

from spark_bull.run.testing.fixtures import redis
from spark_bull.run.testing.process_all import JobOutcome, process_all

__all__ = ["JobOutcome", "process_all", "redis"]
