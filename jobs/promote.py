"""Delayed jobs run when they are due, interrupted writes are finished, jobs of dead workers come back.

    python jobs/promote.py --url redis://localhost:6379            # all queues, until Ctrl-C or SIGTERM
    spark-submit jobs/promote.py mail --once                       # what is due now

The same as `spark-bull promote`, for places where only scripts can be started.
"""

from __future__ import annotations

import sys

from spark_bull.cli.main import main

if __name__ == "__main__":
    sys.exit(main(["promote", *sys.argv[1:]]))
