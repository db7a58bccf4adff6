"""All that depends on the version of Spark, Python or Arrow, and all that uses private names of PySpark."""
