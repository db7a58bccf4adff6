"""Forks the Python processes of a Spark session from one process that has imported their modules.

Each of them would import PySpark, Arrow and spark_bull anew, which takes more CPU than what most tests do with them.
`spark_python.sh` asks this server, by `fork_client.py`, if $SPARK_BULL_TEST_FORKS names its socket. A request is a
line of JSON with the arguments, environment and folder of the process, together with its three standard files. The
server answers with the status of the process when that has ended, and terminates it when the client ends before.
"""

from __future__ import annotations

import gc
import json
import os
import pkgutil
import runpy
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from select import select
from typing import Any, NoReturn

ROOT = Path(__file__).parents[2]
#: Names the socket.
VARIABLE = "SPARK_BULL_TEST_FORKS"
#: Modules that Spark runs as programs, without a daemon or in the forks of one.
_OF_SQL = (
    *("analyze_udtf", "commit_data_source_write", "create_data_source", "data_source_pushdown_filters"),
    *("lookup_data_sources", "plan_data_source_read", "python_streaming_sink_runner", "write_into_data_source"),
)
PROGRAMS = (
    *("pyspark.worker", "pyspark.sql.streaming.python_streaming_source_runner"),
    *(f"pyspark.sql.worker.{name}" for name in _OF_SQL),
)
#: `pytest` since processors are often part of a test's module.
LIBRARIES = ("numpy", "pandas", "pyarrow", "pyarrow.compute", "pyspark.sql.pandas.types", "pyspark.sql", "pytest")
#: Packages of ours that these processes do not import; some import large libraries.
ELSEWHERE = ("spark_bull.ops.cli", "spark_bull.spark.programs", "spark_bull.run.testing", "spark_bull.ops.web")
Request = dict[str, Any]


@contextmanager
def fork_server(folder: Path, python: Path | str = sys.executable) -> Iterator[Path]:
    """Runs a server with an interpreter, and yields its socket."""
    path = folder / "forks"
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [str(python), "-m", __name__, str(path)]
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        assert server.stdout.readline() == b"ready\n", "the fork server failed, see its output"
        yield path
        # It ends at the end of its input, as when this process is killed.


def preload() -> None:
    # PySpark 4.0 has no pushdown of filters.
    for name in filter(find_spec, (*PROGRAMS, *LIBRARIES)):
        import_module(name)
    for module in pkgutil.walk_packages(import_module("spark_bull").__path__, "spark_bull."):
        if not module.name.endswith("__main__") and not module.name.startswith(ELSEWHERE):
            # Environments of older versions lack the libraries of some extras.
            with suppress(ModuleNotFoundError):
                import_module(module.name)
    # Objects of the modules are never collected: the forks share their memory.
    gc.freeze()


def serve(path: str) -> Request | None:
    """Returns in each process that was asked for, with its request, and None in the server when its input has ended."""
    # Its children, of which each waits for one such process, leave nothing behind.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        print("ready", flush=True)
        while sys.stdin not in select([listener, sys.stdin], [], [])[0]:
            client, _ = listener.accept()
            if os.fork():
                client.close()
                continue
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            listener.close()
            request, files = receive(client)
            if request is None:
                os._exit(0)
            if forked := os.fork():
                for file in files:
                    os.close(file)
                await_end(forked, client)
            client.close()
            become(files)
            return request
    return None


def await_end(process: int, client: socket.socket) -> NoReturn:
    """Tells the client the status of a child when that ends; terminates it when the client ends before."""

    def terminate() -> None:
        client.recv(1)
        os.kill(process, signal.SIGTERM)

    thread = threading.Thread(target=terminate)
    thread.start()
    # The child keeps its pid until the thread has ended, which else might terminate another process.
    os.waitid(os.P_PID, process, os.WEXITED | os.WNOWAIT)
    client.shutdown(socket.SHUT_RD)
    thread.join()
    code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    with suppress(ConnectionError):  # The client may have ended, too.
        client.sendall(str(code).encode())
    os._exit(0)


def receive(client: socket.socket) -> tuple[Request | None, list[int]]:
    """A request, and the file descriptors that came with it; None if the client ends before."""
    text, files, _, _ = socket.recv_fds(client, 1 << 16, 3)
    while text and not text.endswith(b"\n"):
        more = client.recv(1 << 16)
        text = text + more if more else b""
    return json.loads(text) if text else None, files


def become(files: list[int]) -> None:
    """Lets this process have the standard files of the client."""
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)


def run(request: Request, base: list[str]) -> None:
    """Runs `python -m MODULE ARGUMENTS…` in this process. `base`: the path of modules without PYTHONPATH."""
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["folder"])
    sys.path[:] = [request["folder"], *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep)), *base]
    module, *arguments = request["arguments"]
    sys.argv = [module, *arguments]
    # It runs as __main__.
    sys.modules.pop(module, None)
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def main(path: str) -> None:
    own = {os.getcwd(), str(ROOT)}
    base = [folder for folder in sys.path if folder not in own]
    preload()
    if request := serve(path):
        run(request, base)


if __name__ == "__main__":
    main(*sys.argv[1:])
