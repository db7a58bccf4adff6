"""The Spark programs of the command line: dispatch, work, collect, report."""
