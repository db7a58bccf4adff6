"""The command line `spark-bull`."""

from spark_bull.ops.cli.main import main

__all__ = ["main"]
