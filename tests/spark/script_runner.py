"""A driver that runs scripts one after the other, in one Spark session: it is submitted alone, without this package.

It connects to the port that is its argument. Each line from there is a JSON list of a script and its arguments; it
answers with a line of JSON: the exit status of the script and what that has printed.

A script may call `session` for a standalone cluster of two hosts on this machine: `local-cluster` has one host, and
Spark starts a speculative copy of a task only on another host. As there, the master and the workers run in the JVM of
the driver.
"""

from __future__ import annotations

import json
import runpy
import socket
import sys
from contextlib import redirect_stdout
from io import StringIO
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
    assert java is not None
    assert gateway is not None
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


def run(script: str, *arguments: str) -> tuple[int, str]:
    sys.argv = [script, *arguments]
    with redirect_stdout(StringIO()) as printed:
        try:
            runpy.run_path(script, run_name="__main__")
            code = 0
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
    return code, printed.getvalue()


def main(port: int) -> None:
    stop = SparkSession.stop
    SparkSession.stop = lambda _: None  # type: ignore[method-assign, assignment]
    with socket.create_connection(("127.0.0.1", port)) as connection, connection.makefile("rw") as lines:
        for line in lines:
            print(json.dumps(run(*json.loads(line))), file=lines, flush=True)
    if session := SparkSession.getActiveSession():
        stop(session)


if __name__ == "__main__":
    main(int(sys.argv[1]))
