"""EmbeddedRedis: start, stop, crash and cleanup."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
import redis

from spark_bull.core.embedded import COMPACT_SETTING, COMPACT_UP_TO, EmbeddedRedis, redis_server
from spark_bull.core.errors import SparkBullError
from tests.support.network import BUS_DISTANCE, own_ports
from tests.support.wait import wait_until

ROOT = Path(__file__).parents[2]


def client_of(server: EmbeddedRedis) -> redis.Redis:
    return redis.Redis.from_url(server.url, decode_responses=True)


def is_alive(pid: int) -> bool:
    """Whether a process runs; a zombie process does not."""
    state = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False).stdout
    return bool(state.strip()) and not state.startswith("Z")


def test_the_server_answers_at_its_url_only_and_persists_nothing(server: EmbeddedRedis) -> None:
    with client_of(server) as client:
        info = client.info("server")
        settings = {name: client.config_get(name)[name] for name in ("bind", "save", "appendonly")}
    assert (info["tcp_port"], info["process_id"]) == (server.port, server.pid)
    assert settings == {"bind": "127.0.0.1", "save": "", "appendonly": "no"}
    assert server.start().pid == info["process_id"], "starting a running server changes nothing"


def test_hashes_with_long_fields_are_compact_unless_the_user_says_otherwise() -> None:
    for config, limit in [({}, "1024"), ({"cluster-enabled": "yes"}, "1024"), ({"hash-max-ziplist-value": "64"}, "64")]:
        with EmbeddedRedis(config) as server, client_of(server) as client:
            assert client.config_get(COMPACT_SETTING)[COMPACT_SETTING] == limit


def test_stop_ends_the_process_and_its_watchdog_removes_the_folder_and_may_be_repeated() -> None:
    server = EmbeddedRedis()
    server.stop()
    with pytest.raises(SparkBullError, match=r"call start\(\) first"):
        _ = server.pid
    pid = server.start().pid
    watchdog = server._watchdog._shell
    with client_of(server) as client:
        folder = Path(client.config_get("dir")["dir"])
    server.stop()
    server.stop()
    assert not server.running
    assert not is_alive(pid)
    assert not folder.exists()
    assert watchdog.returncode == 0


def test_restart_keeps_the_port_and_deletes_the_data_unless_the_config_persists_it() -> None:
    with EmbeddedRedis() as server, client_of(server) as client:
        client.set("seen", 1)
        url, pid = server.url, server.pid
        server.restart()
        assert (server.url, server.pid != pid) == (url, True)
        assert client.get("seen") is None
    with EmbeddedRedis({"appendonly": "yes", "appendfsync": "always"}) as server, client_of(server) as client:
        client.set("seen", 1)
        server.kill()
        assert not server.running
        server.start()
        assert client.get("seen") == "1"


def test_a_password_is_part_of_the_url_but_not_of_the_repr() -> None:
    with EmbeddedRedis({"requirepass": "s3cret/@:word"}) as server, client_of(server) as client:
        assert client.ping()
        assert "s3cret" not in repr(server)


def test_a_config_that_redis_refuses_is_shown_with_its_reason_and_without_passwords() -> None:
    for config, reason, secret in (
        ({"maxmemmory": "50mb", "requirepass": "s3cret"}, r"the server exited(?s:.*)maxmemmory", "s3cret"),
        ({"requirepass": "two words"}, "requirepass", "two words"),
    ):
        server = EmbeddedRedis(config)
        with pytest.raises(SparkBullError, match=reason) as refusal:
            server.start()
        assert secret not in str(refusal.value)
        assert not server.running


def test_another_executable_can_be_used(tmp_path: Path) -> None:
    mark = tmp_path / "started"
    wrapper = tmp_path / "my-redis"
    wrapper.write_text(f'#!/bin/sh\ntouch "{mark}"\nexec "{redis_server()}" "$@"\n')
    wrapper.chmod(0o755)
    with EmbeddedRedis(executable=wrapper) as server:
        assert server.running
    assert mark.exists()


@pytest.mark.parametrize("name", ["redis-server", "valkey-server"])
def test_without_a_package_a_server_of_the_system_runs_or_the_error_names_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str
) -> None:
    known = redis_server()
    (tmp_path / "rm").symlink_to(str(shutil.which("rm")))
    monkeypatch.setattr("spark_bull.core.embedded.find_spec", lambda name: None)
    monkeypatch.setenv("PATH", str(tmp_path))
    needed = r"valkey-server or redis-server on PATH.*pip install 'spark-bull\[local\]'"
    with pytest.raises(SparkBullError, match=needed):
        EmbeddedRedis().start()
    (tmp_path / name).symlink_to(known)
    assert redis_server() == tmp_path / name
    with EmbeddedRedis() as server, client_of(server) as client:
        info = client.info("server")
        product = "Valkey" if "valkey_version" in info else "Redis"
        assert server.server == f"{product} {info[f'{product.lower()}_version']}"


def test_the_server_stops_when_the_program_ends() -> None:
    program = "from spark_bull.core.embedded import EmbeddedRedis; print(EmbeddedRedis().start().pid)"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert not is_alive(int(done.stdout))


OWNER = """
import os, signal, sys, time
from spark_bull.core.embedded import EmbeddedRedis

server = EmbeddedRedis().start()
forked = os.fork()
if not forked:
    # It continues after its parent is killed.
    signal.pause()
print(server.pid, forked, server._folder, flush=True)
signal.pause()
"""


def test_server_and_folder_are_removed_when_the_program_is_killed() -> None:
    for before in ("", "server.restart()", "server.kill(); server.start()"):
        code = OWNER.replace("forked = os.fork()", f"{before}\nforked = os.fork()")
        with subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, text=True) as owner:
            pid, forked, folder = owner.stdout.readline().split()
            try:
                assert is_alive(int(pid))
                assert Path(folder).is_dir()
                owner.kill()
                wait_until(lambda pid=pid: not is_alive(int(pid)), "the server to end")
                wait_until(lambda folder=folder: not Path(folder).exists(), "its folder to go")
                assert is_alive(int(forked))
            finally:
                os.kill(int(forked), signal.SIGKILL)


def test_a_fork_that_ends_leaves_the_server_running() -> None:
    code = "from tests.integration.test_local import use_in_a_fork; use_in_a_fork()"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


def use_in_a_fork() -> None:
    """Runs in a separate program, since pytest must not be forked."""
    with EmbeddedRedis() as server, client_of(server) as client:
        if not (forked := os.fork()):
            with client_of(server) as other:
                other.set("by", "fork")
            server.stop()
            sys.exit(0)
        assert os.waitpid(forked, 0)[1] == 0
        assert client.get("by") == "fork"
        assert server._folder.is_dir()


def test_redis_accepts_every_line_of_our_development_configuration() -> None:
    lines = (ROOT / "conf" / "redis-dev.conf").read_text().splitlines()
    config = dict(line.split(" ", 1) for line in lines if line and not line.startswith("#"))
    with EmbeddedRedis(config) as server, client_of(server) as client:
        assert client.config_get("maxmemory-policy")["maxmemory-policy"] == "noeviction"
    assert config[COMPACT_SETTING] == str(COMPACT_UP_TO)


def test_a_cluster_gets_a_port_whose_bus_port_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[socket.socket] = []
    choose_any = own_ports.randrange

    def choose(low: int, high: int) -> int:
        """Ports of which another program listens on the bus port of the first one that it can have."""
        port = choose_any(low, high)
        if not taken:
            with suppress(OSError):
                taken.append(socket.create_server(("127.0.0.1", port + BUS_DISTANCE)))
        return port

    monkeypatch.setattr("spark_bull.core.embedded.random.randrange", choose)
    with EmbeddedRedis({"cluster-enabled": "yes"}) as server:
        assert server.running
        assert server.port + BUS_DISTANCE != taken[0].getsockname()[1]
    taken[0].close()
