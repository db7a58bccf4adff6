"""A Redis, a standalone Spark of two hosts, and programs on a driver host, with the package by --py-files only."""

from __future__ import annotations

import json
import shutil
import socket
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from redis import Redis
from redis.exceptions import ConnectionError as NoConnection

from spark_bull.core.embedded import redis_server
from tests.proof.hosts.network import FOLDER, HOLDER_ADDRESS, WORKERS, Host, Process
from tests.support.spark_submit import CONF_ARGUMENTS, JVM_OPTIONS, bare_environment, bare_python
from tests.support.wait import PATIENCE_S, wait_until
from tools.build_zip import build

PORT: Final = 6379
MASTER: Final = "spark://driver:7077"
_MEMORY: Final = "1g"
#: How long the application may take to answer, s: without Redis, its slots and writes try for a while.
ANSWER_S: Final = 600.0
_CLOCK: Final = Path(__file__).with_name("clock_ahead.py")


class Cluster:
    """Starts everything. Programs of it end with the process that holds the hosts."""

    def __init__(self, hosts: Mapping[str, Host]) -> None:
        self.hosts = hosts
        self.package = build(FOLDER / "spark_bull.zip")
        self._python = bare_python(FOLDER / "python")
        (library,) = (FOLDER / "python" / "lib").glob("python*/site-packages")
        shutil.copy(_CLOCK, library)
        (library / "clock_ahead.pth").write_text(f"import {_CLOCK.stem}\n")
        own = {"TMPDIR": str(FOLDER), "SPARK_DAEMON_JAVA_OPTS": JVM_OPTIONS, "SPARK_LOCAL_DIRS": str(FOLDER)}
        self._environment = {**bare_environment(self._python), **own, "SPARK_SUBMIT_OPTS": JVM_OPTIONS}
        self._bin = Path(self._environment["SPARK_HOME"]) / "bin"
        (FOLDER / "redis").mkdir()
        self.redis_server = self.start_redis()
        self._start_daemon("driver", "master.Master", "--port", "7077")
        for name in WORKERS:
            self.start_worker(name)
        wait_until(lambda: self._log("master.Master").count("Registering worker") == 2, "both workers to register")

    @property
    def workers(self) -> list[Host]:
        return [self.hosts[name] for name in WORKERS]

    @property
    def url(self) -> str:
        return f"redis://{self.hosts['redis'].address}:{PORT}/0"

    @property
    def redis(self) -> Redis:
        return Redis.from_url(self.url)

    def now_ms(self) -> int:
        """Redis' clock, ms since 1970. What had arrived before this call has been done before that time."""
        with self.redis as client:
            client.ping()
            seconds, microseconds = client.time()
        return int(seconds) * 1000 + int(microseconds) // 1000

    def start_redis(self) -> Process:
        """Starts it with what its append-only file has."""
        options = ("--bind", "0.0.0.0", "--protected-mode", "no", "--save", "", "--dir", str(FOLDER / "redis"))
        server = self._start("redis", str(redis_server()), *options, "--appendonly", "yes", "--appendfsync", "always")
        wait_until(self.answers, "Redis")
        return server

    def start_worker(self, host: str) -> None:
        size = ("--cores", "2", "--memory", _MEMORY, "-d", str(FOLDER / host))
        self._start_daemon(host, "worker.Worker", *size, MASTER)

    def start_program(self, host: str, program: Path, *arguments: str) -> Process:
        return self._start(host, str(self._python), str(program), *arguments)

    def submit(self, program: Path, *arguments: str, prints: int | None = None) -> Process:
        """Starts a program on the driver host. prints: see Host.start."""
        settings = {
            "spark.driver.host": "driver",
            "spark.executor.memory": _MEMORY,
            "spark.executor.extraJavaOptions": JVM_OPTIONS,
        }
        options = (*CONF_ARGUMENTS, "--master", MASTER, "--py-files", str(self.package))
        confs = [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
        command = (str(self._bin / "spark-submit"), *options, *confs, str(program), *arguments)
        return self._start("driver", *command, log=program.stem, prints=prints)

    def log(self, program: Path) -> str:
        return self._log(program.stem)

    def executor_log(self, host: Host) -> str:
        """What all executors on a worker host, and their Pythons, have logged."""
        return "".join(file.read_text() for file in (FOLDER / host.name).glob("app-*/*/stderr"))

    def _start_daemon(self, host: str, name: str, *arguments: str) -> None:
        launch = (str(self._bin / "spark-class"), f"org.apache.spark.deploy.{name}", "--host", host)
        self._start(host, *launch, *arguments, log=name)

    def _start(self, host: str, *command: str, log: str = "", prints: int | None = None) -> Process:
        file = FOLDER / f"{log or host}.txt"
        return self.hosts[host].start(*command, log=file, environment=self._environment, prints=prints)

    def _log(self, name: str) -> str:
        return (FOLDER / f"{name}.txt").read_text()

    def answers(self) -> bool:
        try:
            return bool(self.redis.ping())
        except NoConnection:
            return False


class Application:
    """A running `application.py`."""

    _PROGRAM: Final = Path(__file__).with_name("application.py")
    _RUNS: Final = FOLDER / "runs"

    def __init__(self, cluster: Cluster, queue: str) -> None:
        self.cluster = cluster
        self._RUNS.mkdir()
        with socket.create_server((HOLDER_ADDRESS, 0)) as server:
            server.settimeout(PATIENCE_S)
            address, port = server.getsockname()
            arguments = (cluster.url, queue, address, str(port), str(self._RUNS), str(FOLDER / "results"))
            self._process = cluster.submit(self._PROGRAM, *arguments)
            self._connection, _ = server.accept()
        self._connection.settimeout(ANSWER_S)
        self._replies = self._connection.makefile()

    def ask(self, command: str) -> Any:
        """Sends a command and returns its reply."""
        self._connection.sendall(f"{command}\n".encode())
        if reply := self._replies.readline():
            return json.loads(reply)
        raise AssertionError(f"the application has ended: {self.cluster.log(self._PROGRAM)[-4000:]}")

    def runs(self) -> Counter[str]:
        """How often each job was run, by its id."""
        return Counter(line.split()[0] for host in self.cluster.workers for line in self.runs_on(host))

    def runs_on(self, host: Host) -> list[str]:
        """A line for each run of a job: its id, and the time of Python on that host, s since 1970."""
        file = self._RUNS / host.address
        return file.read_text().splitlines() if file.exists() else []

    def busy_host(self) -> Host:
        """Waits until a job is run, and returns the host on which that is."""
        before = {host.name: len(self.runs_on(host)) for host in self.cluster.workers}

        def found() -> Host | None:
            return next((one for one in self.cluster.workers if len(self.runs_on(one)) > before[one.name]), None)

        host = wait_until(found, "a job to be run")
        assert host is not None
        return host

    def end(self) -> None:
        self._connection.shutdown(socket.SHUT_RDWR)
        status = self._process.wait(ANSWER_S)
        assert status == 0, f"the application ended with {status}: {self.cluster.log(self._PROGRAM)[-4000:]}"
