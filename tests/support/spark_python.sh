#!/bin/sh
# Runs the Python of the tests for Spark, which names it by PYSPARK_PYTHON.
#
# Spark puts its pyspark.zip, which holds no bytecode, in front of the PySpark that is installed: importing from it
# takes a new process three times as long.
case "$PYTHONPATH" in
  */pyspark.zip:*) export PYTHONPATH="${PYTHONPATH##*/pyspark.zip:}" ;;
esac
# The session of the tests has a server that forks its processes.
if [ -S "$SPARK_BULL_TEST_FORKS" ] && [ "$1" = -m ]; then
  shift
  exec "$SPARK_BULL_TEST_PYTHON" -S -E "${0%/*}/fork_client.py" "$@"
fi
exec "$SPARK_BULL_TEST_PYTHON" "$@"
