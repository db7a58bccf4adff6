"""Runs SQL over the jobs of queues, or counts them: `spark-bull report` for spark-submit.

spark-submit jobs/report.py --queue 'mail,invoice-*'
"""

from __future__ import annotations

import sys

from spark_bull.ops.cli.main import main

if __name__ == "__main__":
    sys.exit(main(["report", *sys.argv[1:]]))
