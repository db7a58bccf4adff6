"""Promotes delayed jobs when they are due and rescues stalled jobs: `spark-bull promote` for spark-submit.

spark-submit jobs/promote.py mail --once
"""

from __future__ import annotations

import sys

from spark_bull.ops.cli.main import main

if __name__ == "__main__":
    sys.exit(main(["promote", *sys.argv[1:]]))
