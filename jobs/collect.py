"""Writes finished jobs of queues to a table of files exactly once: `spark-bull collect` for spark-submit.

spark-submit jobs/collect.py --queue 'mail,report-*' --output /lake/results --once
"""

from __future__ import annotations

import sys

from spark_bull.ops.cli.main import main

if __name__ == "__main__":
    sys.exit(main(["collect", *sys.argv[1:]]))
