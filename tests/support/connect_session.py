"""A server of Spark Connect, and a process with a session of it.

The functions of PySpark have another meaning in a process that has such a session.
"""

from __future__ import annotations

import os
import re
import subprocess
import traceback
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from pyspark.sql import SparkSession

import spark_bull
from tests.support.forked_programs import CONTEXT
from tests.support.spark_submit import DRIVER_OPTIONS
from tests.support.wait import PATIENCE_S, wait_until

_STARTED: Final = re.compile(r"Spark Connect server started at: \S+:(\d+)")
_CLASS: Final = "org.apache.spark.sql.connect.service.SparkConnectServer"


@contextmanager
def connect_server(log: Path, environment: Mapping[str, str]) -> Iterator[str]:
    """Runs a server with three cores and a free port; yields its address. `log`: the file for what it prints."""
    settings = {
        "spark.connect.grpc.binding.port": "0",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
    }
    command = [f"{environment['SPARK_HOME']}/bin/spark-submit", "--master", "local[3]", "--class", _CLASS]
    command += [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
    with (
        log.open("w") as output,
        subprocess.Popen(
            [*command, "spark-internal"],
            env={**os.environ, **environment, "SPARK_SUBMIT_OPTS": DRIVER_OPTIONS},
            cwd=log.parent,
            stdout=output,
            stderr=subprocess.STDOUT,
        ) as server,
    ):
        try:
            wait_until(lambda: server.poll() is not None or _STARTED.search(log.read_text()), "the server to start")
            started = _STARTED.search(log.read_text())
            assert started is not None, log.read_text()[-4000:]
            yield f"sc://127.0.0.1:{started[1]}"
        finally:
            server.terminate()


class ConnectClient:
    """Runs functions of a session and further arguments in a process of their own: `client(function, argument)`."""

    def __init__(self, address: str) -> None:
        self._pool = ProcessPoolExecutor(1, CONTEXT, initializer=_connect, initargs=(address,))

    def __call__(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return self._pool.submit(_call, function, arguments).result(PATIENCE_S)

    def __enter__(self) -> ConnectClient:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown()


def _connect(address: str) -> None:
    os.environ.pop("SPARK_BULL_URL", None)
    os.environ["SPARK_REMOTE"] = address
    spark_bull.register(SparkSession.builder.getOrCreate())


def _call(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    try:
        return function(SparkSession.builder.getOrCreate(), *arguments)
    except Exception:
        # Errors of PySpark cannot be sent to another process.
        raise AssertionError(traceback.format_exc()) from None
