"""A driver that runs scripts one after the other, in one Spark session: it is submitted alone, without this package.

It connects to the port that is its argument. Each line from there is a JSON list of a script and its arguments; it
answers with a line of JSON: the exit status of the script and what that has printed.
"""

from __future__ import annotations

import json
import runpy
import socket
import sys
from contextlib import redirect_stdout
from io import StringIO

from pyspark.sql import SparkSession


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
    SparkSession.stop = lambda _: None  # type: ignore[method-assign]
    with socket.create_connection(("127.0.0.1", port)) as connection, connection.makefile("rw") as lines:
        for line in lines:
            print(json.dumps(run(*json.loads(line))), file=lines, flush=True)
    if session := SparkSession.getActiveSession():
        stop(session)


if __name__ == "__main__":
    main(int(sys.argv[1]))
