"""What happens to the hosts while one application works: each fault returns what the table says beside its name."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from spark_bull.core.queue.bull_queue import BullQueue
from tests.proof.hosts.cluster import PORT, Application, Cluster
from tests.proof.hosts.network import LOST, Host
from tests.support.wait import wait_until

Fault = Callable[[Cluster, Application, BullQueue], str]
#: How long most faults last, s.
LASTS_S: Final = 40
_ONE_PERCENT: Final = ("-m", "statistic", "--mode", "random", "--probability", "0.01")
#: What a call logs that waits for Redis.
_NO_ANSWER: Final = "s at most: no answer"
_SLOW_PORT: Final = PORT + 1
_SLOW_PROXY: Final = Path(__file__).with_name("slow_proxy.py")
#: The delay of each direction, ms.
_SLOW_MS: Final = 100


def _cut_executors(seconds: float) -> Fault:
    def inject(cluster: Cluster, application: Application, queue: BullQueue) -> str:
        host = application.busy_host()
        wait_until(lambda: _settled(queue, host, 0), f"the first jobs of {host.name}")
        known = cluster.executor_log(host).count(_NO_ANSWER)
        with host.cut_from(cluster.hosts["redis"]):
            began = cluster.now_ms()
            time.sleep(seconds)
            ended = cluster.now_ms()
            tries = cluster.executor_log(host).count(_NO_ANSWER) - known
        wait_until(lambda: _settled(queue, host, ended, newest=100), f"a job of {host.name} after the cut")
        before, within, after = (
            _settled(queue, host, since, until) for since, until in ((0, began), (began, ended), (ended, 2**53))
        )
        assert not within, f"{host.name} settled {within} jobs while it was cut"
        return f"completed there: {before} before, {within} while cut ({tries} calls without an answer), {after} after"

    return inject


def _settled(queue: BullQueue, host: Host, since: int, until: int = 2**53, newest: int = 0) -> int:
    """How many jobs slots on a host have completed from `since` to before `until`, by Redis' clock."""
    jobs = queue.page("completed", -newest, -1)
    return sum(job.returnvalue == host.address and since <= (job.finished_on or 0) < until for job in jobs)


def _cut_driver(cluster: Cluster, _: Application, __: BullQueue) -> str:
    driver = cluster.hosts["driver"]
    with driver.cut_from(cluster.hosts["redis"]):
        time.sleep(LASTS_S)
        lost = driver.lost()
    assert lost, "the driver has sent nothing to Redis while it was cut"
    return f"{lost} packets"


def _end_connections(cluster: Cluster, _: Application, __: BullQueue) -> str:
    ended = 0
    for _time in range(8):
        time.sleep(LASTS_S / 8)
        with cluster.redis as client:
            ended += int(client.execute_command("CLIENT", "KILL", "TYPE", "normal"))
    assert ended, "no connection was there to end"
    return f"{ended} connections"


def _kill(word: str) -> Fault:
    def inject(cluster: Cluster, _: Application, __: BullQueue) -> str:
        killed = [host.kill(word) for host in cluster.workers]
        assert all(killed), f"expected processes of {word} on each worker host, got {killed}"
        return f"{sum(killed)} processes"

    return inject


def _power_off(cluster: Cluster, application: Application, _: BullQueue) -> str:
    host = application.busy_host()
    host.power_off()
    time.sleep(LASTS_S)
    host.power_on()
    cluster.start_worker(host.name)
    return "without power, then started again"


def _restart_redis(cluster: Cluster, _: Application, queue: BullQueue) -> str:
    cluster.redis_server.kill()
    cluster.redis_server.wait()
    time.sleep(15)
    cluster.redis_server = cluster.start_redis()
    return f"by kill -9; its append-only file had {sum(queue.counts().values()):,} jobs"


def _lose_packets(cluster: Cluster, _: Application, __: BullQueue) -> str:
    hosts = [cluster.hosts["driver"], *cluster.workers]
    with ExitStack() as rules:
        for host in hosts:
            for chain in ("INPUT", "OUTPUT"):
                rules.enter_context(host.rule(chain, *_ONE_PERCENT, *LOST))
        time.sleep(LASTS_S)
        lost = sum(host.lost() for host in hosts)
    assert lost, "no packet was lost"
    return f"{lost} packets, in each direction, also between Spark's processes"


def _delay_packets(cluster: Cluster, _: Application, queue: BullQueue) -> str:
    """New connections go through a proxy, so all that there are end before and after."""
    proxy = cluster.start_program("redis", _SLOW_PROXY, str(_SLOW_PORT), str(PORT), str(_SLOW_MS))
    redirected = ("-i", "eth0", "-p", "tcp", "--dport", str(PORT), "-j", "REDIRECT", "--to-ports", str(_SLOW_PORT))
    with cluster.hosts["redis"].rule("PREROUTING", *redirected, table="nat"):
        wait_until(cluster.answers, "the proxy")
        with cluster.redis as client:
            client.execute_command("CLIENT", "KILL", "TYPE", "normal")
        time.sleep(LASTS_S)
        with cluster.redis as client:
            client.ping()
            asked = time.monotonic()
            client.ping()
            took = time.monotonic() - asked
    proxy.kill()
    assert took * 1000 >= 2 * _SLOW_MS, f"a PING has taken {took:.3f} s"
    return f"by a proxy, in which a PING takes {took * 1000:.0f} ms"


def _set_clock(cluster: Cluster, application: Application, _: BullQueue) -> str:
    host = application.busy_host()
    known = len(application.runs_on(host))
    host.clock_ahead.touch()
    time.sleep(LASTS_S)
    runs = application.runs_on(host)[known:]
    now = time.time()
    host.clock_ahead.unlink()
    ahead = sum(float(line.split()[1]) > now + 300 for line in runs)
    assert ahead, f"no job was run with the wrong clock, of {len(runs)}"
    return f"of Python on one host, which ran {ahead} jobs by the clock"


def _cut_all_executors(cluster: Cluster, application: Application, _: BullQueue) -> str:
    """The driver reaches Redis. Tasks have the four tries of Spark's default."""
    application.ask("pause")
    with ExitStack() as cuts:
        for host in cluster.workers:
            cuts.enter_context(host.cut_from(cluster.hosts["redis"]))
        of_write, of_worker = application.ask("try")
    found = re.findall(r"^spark_bull\.core\.errors\.(\w+: .*?)(?:: |$)", of_write or "", re.MULTILINE)
    assert found, f"expected an error of the package, got {of_write}"
    why, cause = (of_worker or "").partition(", although the driver does")[:2]
    assert cause, f"expected an error of the worker, got {of_worker}"
    application.ask("write")
    application.busy_host()
    return f"`save()` raises `{found[-1]}`; a worker that is started then: `{why}{cause}`"


FAULTS: Final[dict[str, Fault]] = {
    "executor host cut from Redis, 5 s": _cut_executors(5),
    "executor host cut from Redis, 40 s": _cut_executors(40),
    "executor host cut from Redis, 3 min": _cut_executors(180),
    "driver host cut from Redis, 40 s": _cut_driver,
    "CLIENT KILL every 5 s, 40 s": _end_connections,
    "kill -9 of all executors": _kill("CoarseGrainedExecutorBackend"),
    "kill -9 of all Pythons of tasks": _kill("pyspark.daemon"),
    "worker host down, 40 s": _power_off,
    "Redis down, 15 s": _restart_redis,
    "1 % of packets lost, 40 s": _lose_packets,
    "200 ms of latency, 40 s": _delay_packets,
    "clock ten minutes ahead, 40 s": _set_clock,
    "executors without Redis": _cut_all_executors,
}
