"""A Spark standalone cluster of two hosts on this machine, for scripts that script_runner.py runs.

`local-cluster` has one host, and Spark starts a speculative copy of a task only on another host. As there, the
master and the workers run in the JVM of the driver. Imports nothing of this repository, as it is submitted without it.
"""

from __future__ import annotations

from pathlib import Path

from pyspark import SparkContext
from pyspark.sql import SparkSession

HOSTS = ("127.0.0.1", "127.0.0.2")
CORES, MEMORY_MB = 2, 1024


def session() -> SparkSession:
    """The session of this process; the first call starts the cluster, with two cores per host."""
    return SparkSession.getActiveSession() or SparkSession.builder.master(start_cluster()).getOrCreate()


def start_cluster() -> str:
    """Starts a master and a worker for each host; returns the URL for Spark."""
    SparkContext._ensure_initialized()
    java, gateway = SparkContext._jvm, SparkContext._gateway
    deploy, option = java.org.apache.spark.deploy, java.scala.Option.apply
    settings = java.org.apache.spark.SparkConf().set("spark.master.rest.enabled", "false")
    master = deploy.master.Master.startRpcEnvAndEndpoint(HOSTS[0], 0, 0, settings)
    masters = gateway.new_array(java.java.lang.String, 1)
    masters[0] = f"spark://{HOSTS[0]}:{master._1().address().port()}"
    for number, host in enumerate(HOSTS):
        folder = str(Path("executors").absolute())
        deploy.worker.Worker.startRpcEnvAndEndpoint(
            host, 0, 0, CORES, MEMORY_MB, masters, folder, option(number), settings, option(None)
        )
    return str(masters[0])
