"""Processes jobs of a queue on the executors with a Python function: `spark-bull work` for spark-submit.

spark-submit jobs/work.py --queue mail --processor my_jobs:send --url redis://localhost:6379
"""

from __future__ import annotations

import sys

from spark_bull.ops.cli.main import main

if __name__ == "__main__":
    sys.exit(main(["work", *sys.argv[1:]]))
