"""The command line `spark-bull`."""

from spark_bull.cli.main import main

__all__ = ["main"]
