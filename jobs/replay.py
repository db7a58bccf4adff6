"""Adds jobs of a table again, such as one that collect.py has written: `spark-bull replay` for spark-submit.

spark-submit jobs/replay.py --input results --where "state = 'failed'" --queue mail --url redis://localhost:6379
"""

from __future__ import annotations

import sys

from spark_bull.ops.cli.main import main

if __name__ == "__main__":
    sys.exit(main(["replay", *sys.argv[1:]]))
