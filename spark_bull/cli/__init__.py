"""The command `spark-bull`: what BullQueue does, from a shell."""

from spark_bull.cli.main import main

__all__ = ["main"]
