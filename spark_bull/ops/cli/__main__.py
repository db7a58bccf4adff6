"""Runs the command line: python -m spark_bull.ops.cli, or spark-submit "$(spark-bull --submit-file)"."""

import sys

from spark_bull.ops.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
