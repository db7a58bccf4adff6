"""Whole programs in Spark, for the command line: dispatch, work, collect, report."""
