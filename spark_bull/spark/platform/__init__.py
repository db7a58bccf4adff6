"""All that depends on the version of Spark, Python or Arrow."""
