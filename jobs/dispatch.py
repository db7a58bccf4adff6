"""Adds rows of files as jobs of a queue: `spark-bull dispatch` for spark-submit.

spark-submit jobs/dispatch.py --input customers.parquet --queue mail --url redis://localhost:6379
"""

from __future__ import annotations

import sys

from spark_bull.ops.cli.main import main

if __name__ == "__main__":
    sys.exit(main(["dispatch", *sys.argv[1:]]))
