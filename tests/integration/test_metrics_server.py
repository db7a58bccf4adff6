"""`spark-bull metrics`: the text for Prometheus, printed and served."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families
from redis import Redis

from spark_bull import BullQueue, EmbeddedRedis, NewJob, StagedDataLost
from tests.integration.conftest import Run
from tests.support.examples import BLOCKS, PAGES
from tests.support.jobs import HOUR
from tests.support.wait import PATIENCE_S, wait_until
from tests.support.work_bench import each_dialect
from tests.support.writes import register_all
from tools.public_names import labels_of_metrics

Values = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def values_of(text: str) -> Values:
    """The samples of a text, as the client library of Prometheus parses it."""
    families = list(text_string_to_metric_families(text))
    assert len({family.name for family in families}) == len(families), "a metric has one description"
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in families
        for sample in family.samples
    }


def value(values: Values, metric: str, /, **labels: str) -> float:
    return values[metric, tuple(sorted(labels.items()))]


@contextmanager
def serving(*common: str) -> Iterator[str]:
    """The command serves metrics on a free port; returns their URL. Ends it as a service manager does."""
    command = [sys.executable, "-m", "spark_bull.ops.cli", *common, "metrics", "--listen", "127.0.0.1:0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            line = process.stderr.readline()
            assert line.startswith("listening on http://127.0.0.1:"), line
            yield line.removeprefix("listening on ").partition(";")[0]
            assert process.poll() is None
        finally:
            process.send_signal(signal.SIGTERM)
            assert process.wait(PATIENCE_S) == 0


def get(url: str, method: str = "GET") -> tuple[int, str, str]:
    """Status, content type and text."""
    try:
        with urlopen(Request(url, method=method), timeout=PATIENCE_S) as answer:
            return answer.status, answer.headers["Content-Type"], answer.read().decode()
    except HTTPError as error:
        return error.code, error.headers["Content-Type"], error.read().decode()


@each_dialect
def test_metrics_show_jobs_waiting_times_and_what_is_late(run: Run, client: Redis, queue: BullQueue) -> None:
    now, has_times = queue.handle.connection.now_ms(), queue.handle.dialect.has("finish-times")
    queue.add_many([NewJob(n, name="send", timestamp=now - HOUR) for n in range(3)])
    queue.add_many([NewJob(n, name="resize") for n in range(2)])
    queue.pause()
    queue.close_intake()
    client.zadd(queue.handle.keys["delayed"], {"late": (now - HOUR) * 4096})
    client.zadd(queue.handle.keys["open_writes"], {"w1": 1, "in progress": now, "only prepared": -1})
    if has_times:
        add_completed(queue, client, "done", now)
    values = values_of(run("metrics", "mail", "--protocol", queue.protocol))
    of_mail = {name: number for (name, labels), number in values.items() if labels == (("queue", "mail"),)}
    states = [(("queue", "mail"), ("state", one)) for one in ("waiting", "delayed", "paused")]
    assert sum(values.get(("bullmq_job_count", labels), 0) for labels in states) == 6
    assert {name: of_mail[f"spark_bull_{name}"] for name in SHOWN} == SHOWN
    assert 3_600 <= of_mail["spark_bull_overdue_seconds"] < 3_600_000
    assert of_mail["spark_bull_oldest_waiting_seconds"] >= 3_600
    assert ("bullmq_job_completed_total" in of_mail) == queue.handle.dialect.has("metrics")
    assert of_mail.get("spark_bull_workers") == (0 if queue.handle.dialect.has("client-names") else None)
    if has_times:
        of_send = {"queue": "mail", "name": "send", "percentile": "95"}
        assert value(values, "spark_bull_job_wait_seconds", **of_send) == 1
        assert value(values, "spark_bull_job_run_seconds", **of_send) == 2
        assert value(values, "spark_bull_job_run_seconds", queue="mail", percentile="50") == 2
        assert value(values, "spark_bull_jobs", queue="mail", name="send", state="completed") == 1
    found: dict[str, set[str]] = {}
    for name, labels in values:
        found.setdefault(name, set()).update(dict(labels))
    assert found == {name: set(labels) for name, labels in labels_of_metrics().items() if name in found}


#: Metrics of a queue with five jobs that is paused and closed, with a late job, an unfinished write and a new one.
SHOWN = {"jobs_added_total": 5, "queue_paused": 1, "queue_intake_open": 0, "jobs_overdue": 1}
SHOWN |= {"unfinished_writes": 1}


def add_completed(queue: BullQueue, client: Redis, job_id: str, now: int) -> None:
    """A job that has waited for one second, and run for two, as Node stores it."""
    fields = {"name": "send", "timestamp": now - 4_000, "processedOn": now - 3_000, "finishedOn": now - 1_000}
    client.hset(queue.handle.keys.job(job_id), mapping=fields)
    client.zadd(queue.handle.keys["completed"], {job_id: now - 1_000})


def test_metrics_of_several_queues_have_one_description_and_global_labels(
    run: Run, open_queue: Callable[..., BullQueue]
) -> None:
    for name in ("mail-a", "mail-b", "sms"):
        open_queue(name).add({}, name="send")
    values = values_of(run("metrics", "mail-*", "--label", "environment=a=b", "--label", 'zone="x"'))
    found = {dict(labels).get("queue") for _, labels in values}
    assert found == {None, "mail-a", "mail-b"}
    assert {(dict(labels)["environment"], dict(labels)["zone"]) for _, labels in values} == {("a=b", '"x"')}
    assert {dict(labels).get("queue") for _, labels in values_of(run("metrics"))} == {None, "mail-a", "mail-b", "sms"}
    labels = {"queue": "sms", "state": "waiting", "zone": "x"}
    rows = run.data("metrics", "sms", "--label", "zone=x")
    assert {"metric": "bullmq_job_count", "labels": labels, "value": 1} in rows


def test_a_write_that_has_lost_jobs_is_counted_as_broken(run: Run, queue: BullQueue) -> None:
    register_all(queue.handle, "whole", [[NewJob({})]])
    queue.recover()
    assert value(values_of(run("metrics", "mail")), "spark_bull_broken_writes", queue="mail") == 0
    register_all(queue.handle, "cut", [[NewJob({})]])
    queue.handle.connection.call("DEL", queue.handle.keys.stage("cut.0.0"))
    with pytest.raises(StagedDataLost):
        queue.recover()
    values = values_of(run("metrics", "mail"))
    assert value(values, "spark_bull_broken_writes", queue="mail") == 1
    assert value(values, "spark_bull_unfinished_writes", queue="mail") == 0


def test_statistics_can_be_limited_and_left_out(run: Run, queue: BullQueue) -> None:
    queue.add_many(NewJob({}, name=f"n{n}") for n in range(5) for _ in range(n + 1))
    names = {dict(labels).get("name") for _, labels in values_of(run("metrics", "mail", "--names", "2"))}
    assert names == {None, "n3", "n4"}
    without = {name for name, _ in values_of(run("metrics", "mail", "--sample", "0"))}
    assert "spark_bull_queue_paused" in without
    assert not without & {"spark_bull_oldest_waiting_seconds", "spark_bull_jobs", "spark_bull_jobs_added_per_second"}


def queries_for_keda() -> list[str]:
    """The queries of the docs, the one of the ScaledObject first."""
    (text,) = (block.text for block in BLOCKS if block.language == "yaml" and "kind: ScaledObject" in block.text)
    (trigger,) = yaml.safe_load(text)["spec"]["triggers"]
    assert (trigger["type"], trigger["metricType"]) == ("prometheus", "AverageValue")
    assert float(trigger["metadata"]["threshold"]) > 0
    page = next(page for page in PAGES if page.name == "scale.md").read_text("utf-8")
    queries = [query.replace("\\|", "|") for query in re.findall(r"^\| `(\w+\(.*\))` \|", page, re.MULTILINE)]
    assert queries[0] == trigger["metadata"]["query"]
    assert len(queries) == 3
    return queries


def test_the_query_for_keda_in_the_docs_finds_the_wanted_slots(
    run: Run, client: Redis, queue: BullQueue, open_queue: Callable[..., BullQueue]
) -> None:
    """They follow the backlog, the durations of the jobs that have ended, and the target."""
    queries = queries_for_keda()

    def answers(*arguments: str) -> list[float]:
        values = values_of(run("metrics", *arguments))
        return [answer(values, query) for query in queries]

    open_queue("other", "bullmq").add({})
    queue.add_many(NewJob({}, priority=n % 2) for n in range(240))
    assert answers() == [1, 240, pytest.approx(0, abs=PATIENCE_S)]
    now = queue.handle.connection.now_ms()
    for n in range(10):
        add_completed(queue, client, f"done{n}", now)
    # 240 jobs of two seconds each.
    assert answers()[0] == 16
    assert answers("--target-wait", "1m")[0] == 8
    queue.pause()
    assert answers()[0] == 0
    queue.resume()
    queue.drain()
    assert answers() == [1, 0, 0], "jobs end at a rate that keeps a part of a slot busy"
    assert 'spark_bull_wanted_slots{queue="mail"}' not in run("metrics", "--sample", "0")


def answer(values: Values, query: str) -> float:
    """What Prometheus answers to a sum or a maximum of samples."""
    match = re.fullmatch(r"(sum|max)\((\w+)\{(.*)\}\)", query)
    assert match is not None, query
    function, metric, condition = match.groups()
    matchers = re.findall(r'(\w+)(=~?)"([^"]*)"', condition)
    assert ", ".join(f'{name}{sign}"{text}"' for name, sign, text in matchers) == condition
    found = [
        number
        for (name, labels), number in values.items()
        if name == metric
        and all(
            re.fullmatch(text if sign == "=~" else re.escape(text), dict(labels)[of]) for of, sign, text in matchers
        )
    ]
    return {"sum": sum, "max": max}[function](found)


def test_metrics_are_served_as_text_of_prometheus(run: Run, queue: BullQueue) -> None:
    with serving(*run.common) as url:
        for added in (1, 2):
            queue.add({})
            status, content_type, text = get(url)
            assert (status, content_type) == (200, "text/plain; version=0.0.4; charset=utf-8")
            assert text.endswith("\n")
            assert value(values_of(text), "bullmq_job_count", queue="mail", state="waiting") == added
        root = url.removesuffix("metrics")
        assert get(url, "HEAD") == (200, content_type, "")
        assert [get(path)[0] for path in (f"{url}?x=1", root, f"{root}nowhere")] == [200, 200, 404]
        assert [get(url, method)[0] for method in ("POST", "DELETE")] == [405, 405]


@pytest.mark.faults
def test_the_server_outlives_redis(own_redis: Callable[[], EmbeddedRedis]) -> None:
    server = own_redis()
    BullQueue("mail", url=server.url).add({})
    with serving("--url", server.url) as url:
        assert get(url)[0] == 200
        server.kill()
        status, content_type, text = get(url)
        assert (status, content_type) == (503, "text/plain; charset=utf-8")
        assert "127.0.0.1" in text
        assert get(url.replace("/metrics", "/healthz"))[0] == 200
        server.start()
        BullQueue("mail", url=server.url).add({})
        wait_until(lambda: get(url)[0] == 200, "the metrics to be back")
        assert value(values_of(get(url)[2]), "spark_bull_jobs_added_total", queue="mail") >= 1
