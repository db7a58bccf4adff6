"""Fixtures for all tests: a Redis, a prefix per test, the real Node libraries."""

from __future__ import annotations

import gc
import logging
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from redis import Redis
from redis.exceptions import MovedError

from spark_bull.core import embedded as embedded_redis
from spark_bull.core.embedded import EmbeddedRedis
from spark_bull.core.keys import literal_glob
from spark_bull.core.queue.bull_queue import BullQueue
from tests.dealing import deal
from tests.support.fork_server import VARIABLE, fork_server
from tests.support.network import own_ports
from tests.support.node import NODE_DIRECTORY, NodePeer, NodeProcess, Peer
from tests.support.redis_servers import (
    KINDS,
    PASSWORD,
    USER,
    RedisCluster,
    Sentinels,
    redis_container,
    rules,
)
from tests.support.spark_submit import DRIVER_OPTIONS, LAUNCHER_OPTIONS, bare_python
from tests.support.steps import Steps
from tests.support.wait import wait_until
from tools.build_zip import build

NODE_MAJOR = 18
#: Half an hour, and more than a test of job schedulers takes on a busy machine, in s.
HALF_HOUR_S, SCHEDULES_TAKE_S = 1_800, 60

# Time limits of Hypothesis would depend on the speed of the machine.
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")
# Ports of the servers that the tests start: no two processes of pytest choose the same one.
embedded_redis.random = own_ports
# `make servers` names the server of all tests, clusters and Sentinels included.
if OWN_SERVER := os.environ.get("SPARK_BULL_TEST_SERVER"):
    embedded_redis._bundled_server = partial(Path, OWN_SERVER)
# The Python that Spark starts, in the sessions of the tests and of the programs that they run.
os.environ["PYSPARK_PYTHON"] = str(Path(__file__).parent / "support" / "spark_python.sh")
os.environ["SPARK_BULL_TEST_PYTHON"] = sys.executable
# A JVM that runs only some seconds needs half as much CPU without its second compiler and parallel garbage collector.
os.environ["SPARK_SUBMIT_OPTS"] = DRIVER_OPTIONS
os.environ["SPARK_LAUNCHER_OPTS"] = LAUNCHER_OPTIONS
# For how long, in s, Python waits for rows of the JVM.
os.environ["SPARK_AUTH_SOCKET_TIMEOUT"] = "600"
# Each process would compile the modules of the tests and of the package anew.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
# Shells start background programs with SIGINT ignored, but some tests send it.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--redis",
        choices=["plain", *KINDS],
        default="plain",
        help="a user with no more rights than docs/access.md gives: acl: on one server; cluster: three nodes; sentinel",
    )
    parser.addoption("--each-value", action="store_true", help="with --redis: runs tests with all their values")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collects without the garbage collector, and keeps it from looking through all tests again and again later."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if processes := os.environ.get("PYTEST_XDIST_WORKER_COUNT"):
        items[:] = deal(items, int(processes))


def need(condition: object, reason: str) -> None:
    """Skips the test if the condition is false; in CI, where all services must exist, fails it."""
    if condition:
        return
    if os.environ.get("CI"):
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


@pytest.fixture(scope="session")
def redis_kind(request: pytest.FixtureRequest) -> str:
    """The kind of Redis that the tests use: plain, or one of KINDS."""
    return str(request.config.getoption("--redis"))


@pytest.fixture(scope="session")
def admin_url(redis_kind: str, request: pytest.FixtureRequest) -> Iterator[str]:
    """A Redis with all rights: the one of SPARK_BULL_TEST_URL, else a container, else an EmbeddedRedis."""
    if redis_kind == "cluster":
        yield request.getfixturevalue("cluster").primaries[1].url
    elif redis_kind == "sentinel":
        yield request.getfixturevalue("watched").primary.url
    elif redis_kind == "acl":
        with EmbeddedRedis(_user()) as server:
            yield server.url
    elif url := os.environ.get("SPARK_BULL_TEST_URL"):
        yield url
    elif not OWN_SERVER and _docker_answers():
        with redis_container() as url:
            yield url
    else:
        with EmbeddedRedis() as server:
            yield server.url


@pytest.fixture(scope="session")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sentinels]:
    """A Redis behind a Sentinel, with the user of the tested code."""
    with Sentinels(tmp_path_factory.mktemp("sentinels"), config=_user()) as servers:
        yield servers


@pytest.fixture(scope="session")
def cluster() -> Iterator[RedisCluster]:
    """A cluster, with the user of the tested code; the keys of the tests are on its second node."""
    with RedisCluster(3, config=_user("cluster")) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def redis_url(redis_kind: str, admin_url: str, request: pytest.FixtureRequest) -> str:
    """The same Redis, with the user of the tested code, by its Sentinel, or by another node."""
    if redis_kind == "plain":
        return admin_url
    others = {"sentinel": "watched", "cluster": "cluster"}
    url = request.getfixturevalue(others[redis_kind]).url if redis_kind in others else admin_url
    return str(url).replace("://", f"://{USER}:{PASSWORD}@")


def _user(place: str = "") -> dict[str, str]:
    """The configuration of a user with the rights of docs/access.md. In a cluster, prefixes have braces."""
    prefixes = "{test-*" if place == "cluster" else "test-*"
    return {"user": f"{USER} on >{PASSWORD} {rules(prefix=prefixes, place=place)}"}


@pytest.fixture(scope="session")
def client(admin_url: str) -> Iterator[Redis]:
    """A client of that Redis, whose replies are bytes."""
    with Redis.from_url(admin_url) as client:
        yield client


@pytest.fixture(autouse=True)
def no_half_hour_during_schedules(request: pytest.FixtureRequest) -> None:
    """Tests of job schedulers do not begin in the last minute of a half hour: the next times of many end it."""
    if "schedule" in request.node.nodeid:
        wait_until(lambda: time.time() % HALF_HOUR_S < HALF_HOUR_S - SCHEDULES_TAKE_S, "the next half hour")


@pytest.fixture
def own_log(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    """What is logged, but nothing of the threads that earlier tests have left."""
    left = {*threading.enumerate()} - {threading.current_thread()}

    def is_own(_record: logging.LogRecord) -> bool:
        return threading.current_thread() not in left

    caplog.handler.addFilter(is_own)
    yield caplog
    caplog.handler.removeFilter(is_own)


@pytest.fixture
def prefix(client: Redis, redis_kind: str) -> Iterator[str]:
    """A unique key prefix; only its keys are deleted after the test, since the server may be shared."""
    with own_prefix(client, redis_kind) as prefix:
        yield prefix


@contextmanager
def own_prefix(client: Redis, redis_kind: str) -> Iterator[str]:
    """A unique key prefix, whose keys are deleted at the end."""
    prefix = f"test-{uuid.uuid4().hex[:12]}"
    if redis_kind == "cluster":
        prefix = next(one for one in iter(lambda: f"{{test-{uuid.uuid4().hex[:12]}}}", "") if _is_on(client, one))
    yield prefix
    keys = list(client.scan_iter(match=f"{literal_glob(prefix)}:*", count=1000))
    for start in range(0, len(keys), 1000):
        client.unlink(*keys[start : start + 1000])


def _is_on(client: Redis, key: str) -> bool:
    """Whether the node of a client has the slot of a key."""
    try:
        return client.exists(key) >= 0
    except MovedError:
        return False


@pytest.fixture
def open_queue(redis_url: str, prefix: str) -> Iterator[Callable[..., BullQueue]]:
    """Opens queues, which are closed after the test."""
    with ExitStack() as opened:

        def open_queue(name: str = "q", /, protocol: str = "auto", **options: Any) -> BullQueue:
            given = {"url": redis_url, "prefix": prefix, "protocol": protocol, **options}
            return opened.enter_context(BullQueue(name, **given))

        yield open_queue


@pytest.fixture
def queue(request: pytest.FixtureRequest, open_queue: Callable[..., BullQueue]) -> BullQueue:
    """The queue `q` of BullMQ, or of the dialect that is a parameter."""
    return open_queue(protocol=getattr(request, "param", "bullmq"))


@pytest.fixture(scope="module")
def server() -> Iterator[EmbeddedRedis]:
    """A separate server for the tests of a module."""
    with EmbeddedRedis() as server:
        yield server


@pytest.fixture
def own_redis() -> Iterator[Callable[..., EmbeddedRedis]]:
    """Starts separate servers, which a test may fill, block or kill: `own_redis({"maxmemory": "4mb"})`."""
    with ExitStack() as servers:
        yield lambda config=None: servers.enter_context(EmbeddedRedis(config))


@pytest.fixture(scope="session")
def package_zip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file that `make zip` builds."""
    return build(tmp_path_factory.mktemp("dist") / "spark_bull.zip")


@pytest.fixture(scope="session")
def foreign_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python with all packages of this one, except spark_bull."""
    return bare_python(tmp_path_factory.mktemp("foreign"))


@pytest.fixture(scope="session")
def python_forks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The socket of a server that forks the Python processes of Spark."""
    with fork_server(tmp_path_factory.mktemp("forks")) as socket:
        yield socket


@pytest.fixture
def forked_python(python_forks: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The Python processes of JVMs that the test starts are forks, too."""
    monkeypatch.setenv(VARIABLE, str(python_forks))


@pytest.fixture(scope="session")
def node_packages() -> None:
    """Requires Node and its packages."""
    need_node()


@cache
def need_node() -> None:
    """Skips the test, or fails it in CI, without Node and its packages."""
    node = shutil.which("node")
    found = subprocess.run([node, "--version"], capture_output=True, text=True, check=False).stdout if node else ""
    version = int(found.lstrip("v").partition(".")[0] or 0)
    need(version >= NODE_MAJOR, f"needs Node.js {NODE_MAJOR} or newer, found {version or 'none'}")
    need((NODE_DIRECTORY / "node_modules").is_dir(), "needs the Node packages: run `npm ci` in tests/node")


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("interop"):
        need_node()


@pytest.fixture(scope="session")
def node_processes(node_packages: None) -> Iterator[Callable[[str, str], NodeProcess]]:
    """One process per library and Redis for all tests, since starting one takes longer than most tests."""
    running: dict[tuple[str, str], NodeProcess] = {}

    def process(alias: str, url: str) -> NodeProcess:
        if (alias, url) not in running or not running[alias, url].alive:
            running[alias, url] = NodeProcess(alias, url)
        return running[alias, url]

    yield process
    for one in running.values():
        one.end()


@pytest.fixture
def node(
    request: pytest.FixtureRequest,
    node_processes: Callable[[str, str], NodeProcess],
    own_redis: Callable[..., EmbeddedRedis],
) -> Iterator[Callable[..., NodePeer]]:
    """Starts Node libraries on the shared Redis: `node("bullmq-6.7.0", prefix=prefix)`.

    With another `url`, or `alone=True`, the library has a separate process, which can be killed. Servers of `own_redis`
    end after it: a library that has lost its Redis does not close.
    """
    with ExitStack() as peers:

        def start(alias: str, *, prefix: str, url: str | None = None, alone: bool = False) -> NodePeer:
            where = url or request.getfixturevalue("admin_url")
            process = None if url or alone else node_processes(alias, where)
            return peers.enter_context(NodePeer(alias, where, prefix, process=process))

        yield start


@pytest.fixture
def steps(peer: Peer, node: Callable[..., NodePeer], client: Redis, redis_url: str, prefix: str) -> Iterator[Steps]:
    """Node and we under two prefixes."""
    prefixes = (f"{prefix}-left", f"{prefix}-ours")
    nodes = (node(peer.alias, prefix=prefixes[0]), node(peer.alias, prefix=prefixes[1]))
    with closing(Steps(peer, nodes, prefixes, client, redis_url)) as steps:
        yield steps


@cache
def _docker_answers() -> bool:
    try:
        asked = subprocess.run(["docker", "info"], capture_output=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return asked.returncode == 0
