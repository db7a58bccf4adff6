"""A Redis, a standalone Spark of two hosts, and programs on a driver host, with the package by --py-files only."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from redis import Redis
from redis.exceptions import ConnectionError as NoConnection

from spark_bull.core.embedded import redis_server
from tests.proof.hosts.network import FOLDER, Host, Process
from tests.support.spark_submit import CONF_ARGUMENTS, JVM_OPTIONS, bare_environment, bare_python
from tests.support.wait import wait_until
from tools.build_zip import build

PORT: Final = 6379
MASTER: Final = "spark://driver:7077"
_MEMORY: Final = "1g"


class Cluster:
    """Starts everything. Programs of it end with the process that holds the hosts."""

    def __init__(self, hosts: Mapping[str, Host]) -> None:
        self.hosts = hosts
        self.package = build(FOLDER / "spark_bull.zip")
        python = bare_python(FOLDER / "python")
        own = {"TMPDIR": str(FOLDER), "SPARK_DAEMON_JAVA_OPTS": JVM_OPTIONS, "SPARK_LOCAL_DIRS": str(FOLDER)}
        self._environment = {**bare_environment(python), **own, "SPARK_SUBMIT_OPTS": JVM_OPTIONS}
        self._bin = Path(self._environment["SPARK_HOME"]) / "bin"
        self._start("redis", str(redis_server()), "--bind", "0.0.0.0", "--protected-mode", "no", "--save", "")
        wait_until(self._redis_answers, "Redis")
        launch, deploy = str(self._bin / "spark-class"), "org.apache.spark.deploy"
        self._start("driver", launch, f"{deploy}.master.Master", "--host", "driver", "--port", "7077", log="master")
        for name in ("worker1", "worker2"):
            size = ("--cores", "2", "--memory", _MEMORY, "-d", str(FOLDER / name))
            self._start(name, launch, f"{deploy}.worker.Worker", "--host", name, *size, MASTER)
        wait_until(lambda: self._log("master").count("Registering worker") == 2, "both workers to register")

    @property
    def url(self) -> str:
        return f"redis://{self.hosts['redis'].address}:{PORT}/0"

    @property
    def redis(self) -> Redis:
        return Redis.from_url(self.url)

    def submit(self, program: Path, *arguments: str) -> Process:
        """Starts a program on the driver host."""
        settings = ("spark.driver.host=driver", f"spark.executor.memory={_MEMORY}", "spark.task.maxFailures=20")
        options = (*CONF_ARGUMENTS, "--master", MASTER, "--py-files", str(self.package))
        confs = [
            part
            for setting in (*settings, f"spark.executor.extraJavaOptions={JVM_OPTIONS}")
            for part in ("--conf", setting)
        ]
        command = (str(self._bin / "spark-submit"), *options, *confs, str(program), *arguments)
        return self._start("driver", *command, log=program.stem, prints=subprocess.PIPE)

    def log(self, program: Path) -> str:
        return self._log(program.stem)

    def _start(self, host: str, *command: str, log: str = "", prints: int | None = None) -> Process:
        file = FOLDER / f"{log or host}.txt"
        return self.hosts[host].start(*command, log=file, environment=self._environment, prints=prints)

    def _log(self, name: str) -> str:
        return (FOLDER / f"{name}.txt").read_text()

    def _redis_answers(self) -> bool:
        try:
            return bool(self.redis.ping())
        except NoConnection:
            return False


class Application:
    """A running `application.py`."""

    _PROGRAM: Final = Path(__file__).with_name("application.py")

    def __init__(self, cluster: Cluster, queue: str) -> None:
        self._cluster = cluster
        pipe = FOLDER / "commands"
        os.mkfifo(pipe)
        self._process = cluster.submit(self._PROGRAM, cluster.url, queue, str(pipe), str(FOLDER / "results"))
        self._commands = pipe.open("w")

    def ask(self, command: str) -> Any:
        """Sends a command and returns its reply."""
        print(command, file=self._commands, flush=True)
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith(b"reply "):
                return json.loads(line.removeprefix(b"reply "))
            sys.stderr.buffer.write(line)
        raise AssertionError(f"the application has ended: {self._cluster.log(self._PROGRAM)[-4000:]}")

    def end(self) -> None:
        self._commands.close()
        self._process.wait()
