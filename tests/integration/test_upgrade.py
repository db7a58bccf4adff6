"""What older versions have left in Redis is read, finished or named by this one.

`python -m tests.integration.upgrade 1.1.0` stores what this version leaves.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from redis import Redis

from spark_bull import EmbeddedRedis, IntakeClosed, WriteRecord
from spark_bull.core.queue.dispatch.written import written_ids
from spark_bull.core.queue.manage.cancel import cancel_requests
from spark_bull.core.queue.monitor.find import describe, find_queues, workers_of_spark
from spark_bull.core.queue.work.verbs import guard, promote_due
from spark_bull.run.testing import process_all
from spark_bull.spark.collect.stream import result_reader
from spark_bull.spark.schemas import SCHEMAS
from tests.integration.upgrade import (
    FOLDER,
    GRAPH,
    GUARD,
    GUARDED_MS,
    HOUR_MS,
    PREFIX,
    ROWS,
    SECRET,
    Place,
    caller_of,
    events_of,
    load,
    read_ids,
)
from tests.integration.verbs import doctor
from tests.support.without_spark import ClaimingQuery, Sink
from tests.support.work_bench import DIALECTS, completed
from tools.public_names import private_keys

VERSIONS = sorted(FOLDER.glob("*.json"))


@pytest.fixture(params=VERSIONS, ids=lambda file: file.stem)
def place(
    request: pytest.FixtureRequest, server: EmbeddedRedis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Place:
    """The Redis of a version, and what checkpoints know of it."""
    for name, value in SECRET.items():
        monkeypatch.setenv(name, value)
    with Redis.from_url(server.url) as client:
        client.flushall()
    return load(request.param, server.url, tmp_path)


def numbers_in(place: Place, queue: str, protocol: str = "bullmq") -> list[int]:
    return sorted(job.data["n"] for job in place.queue(queue, protocol).page("wait", stop=1_000))


def test_open_writes_are_finished_and_abandoned_ones_given_up(place: Place) -> None:
    def finished(queue: str, protocol: str = "bullmq") -> WriteRecord:
        (record,) = place.queue(queue, protocol).recover()
        assert record.state == "finished"
        return record

    for dialect in DIALECTS:
        assert finished(f"open-{dialect}", dialect).added == 30
        assert numbers_in(place, f"open-{dialect}", dialect) == [*range(30)]
    finished("flows")
    assert place.queue("flows").counts()["waiting-children"] == 4
    assert place.queue("pages").counts()["wait"] == 8
    finished("scheduled")
    assert sorted(found.id for found in place.queue("scheduled").schedulers()) == ["s0", "s1", "s2", "s3"]
    managed = finished("managed")
    outcomes = [changed.outcome for changed in place.queue("managed").outcomes(managed.id)]
    assert (managed.changed, outcomes) == (4, ["done"] * 4)
    finished("called-back")
    assert len(process_all(place.queue("called-back"), lambda job: 1)) == 6
    assert [job.data["day"] for job in place.queue("reports").page("wait")] == [1]
    for name in ("confirmed-a", "confirmed-b"):
        finished(name)
        assert numbers_in(place, name) == [*range(12)]
    for name in ("undecided-a", "undecided-b"):
        assert place.queue(name).recover() == place.queue(name).writes() == []
        assert numbers_in(place, name) == []
    assert place.queue("staged").recover() == []
    assert not any(place.queue("staged").counts().values())


@pytest.mark.parametrize("queue", ["graph", "relays", "released"])
def test_jobs_that_depend_on_others_run_after_them(place: Place, queue: str) -> None:
    found = place.queue(queue)
    found.recover()
    order: list[str] = []
    for _ in GRAPH:
        process_all(found, lambda job: order.append(job.id))
        promote_due(found.handle)
    assert found.counts()["completed"] == len(GRAPH)
    ended = ["first"] if queue == "released" else []
    assert sorted(ended + order) == sorted(GRAPH)
    order = ended + order
    assert all(order.index(other) < order.index(job_id) for job_id, others in GRAPH.items() for other in others)


def test_a_write_that_is_repeated_adds_nothing_and_its_jobs_are_known(place: Place) -> None:
    queue = place.queue("known")
    (record,) = queue.writes()
    assert [*written_ids(queue.handle, record.id)] == ["1", "2", "3"]
    sink = Sink(place.options("known", keepIds="true", txnAppId="nightly", txnVersion="7"), ROWS)
    sink.task([{"n": 8, "queue": None, "key": None}])
    sink.commit()
    assert numbers_in(place, "known") == [0, 1, 2]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_query_goes_on_with_its_ledger_of_results(place: Place, dialect: str) -> None:
    start, end, ids = (place.facts["results"][dialect][name] for name in ("start", "end", "ids"))
    options = place.options(f"results-{dialect}", dialect, maxJobsPerTrigger="2")
    reader = result_reader(options, SCHEMAS["jobs"])
    assert read_ids(reader, start, end) == ids
    while (following := reader.latestOffset(end, reader.getDefaultReadLimit())) != end:
        ids += read_ids(reader, end, following)
        end = following
    reader._collector(end["reader"]).close()
    assert sorted(ids) == ["1", "2", "3", "4", "5"]


def test_a_query_of_events_goes_on_from_its_offset(place: Place) -> None:
    reader, (start, end) = events_of(place), place.facts["events"].values()
    ids = read_ids(reader, start, end)
    assert len(ids) == 5
    while (following := reader.latestOffset(end, reader.getDefaultReadLimit())) != end:
        ids += read_ids(reader, end, following)
        end = following
    assert ids == [number.decode() for number, _ in place.client.xrange(f"{PREFIX}:results-bullmq:events")]


def test_a_query_goes_on_with_its_ledger_of_claims(place: Place) -> None:
    queue, claims = place.queue("claims"), place.facts["claims"]
    query = ClaimingQuery(queue, lockMs=HOUR_MS, maxJobsPerTrigger=5)
    query.start, query.end = claims["start"], claims["end"]
    rows = query.restart()
    assert len(rows) == 5
    settled = [row for row in rows if row["id"] not in claims["settled"]]
    assert query.settle(*({**row, "returnvalue": "2"} for row in settled)) == {"completed": 3}
    while rows := query.batch():
        query.settle(*({**row, "returnvalue": "3"} for row in rows))
    query.close()
    assert queue.counts()["completed"] == 6


def test_queues_are_as_they_were(place: Place) -> None:
    for dialect in DIALECTS[1:]:
        queue = place.queue(f"daily-{dialect}", dialect)
        assert [(found.id, found.pattern) for found in queue.schedulers()] == [("report", "0 0 * * *")]
        assert queue.job(queue.run_scheduler("report")).data == {"n": 1}
    order: list[tuple[str, int]] = []
    process_all(place.queue("sequences"), lambda job: order.append((job.data["key"], job.data["n"])))
    assert sorted(order) == [("a", 1), ("a", 3), ("b", 4)]
    assert order.index(("a", 1)) < order.index(("a", 3))
    for name in ("groups-0", "groups-3"):
        groups = {group.group: group for group in place.queue(name).groups()}
        assert groups["a"].concurrency == 1
        assert groups["c"].is_paused
        place.queue(name).resume_group("c")
    sink = Sink(place.options("logical", shards="auto"), ROWS)
    sink.task([{"n": n, "queue": None, "key": None} for n in (4, 5)])
    sink.commit()
    assert sorted(numbers_in(place, "logical{0}") + numbers_in(place, "logical{1}")) == [*range(6)]
    (expired,) = process_all(place.queue("expiring"), lambda job: 1) or place.queue("expiring").page("failed")
    assert "expire" in str(expired.failed_reason)
    with pytest.raises(IntakeClosed):
        place.queue("closed").add({})
    guarded = place.queue("guarded")
    assert "a guard until 2023" in str(describe(guarded.handle).pause_reason)
    assert guard(guarded.handle, GUARD, now=GUARDED_MS + 302_000).done == "resumed"
    assert len(workers_of_spark(place.queue("worked").handle)) == 1
    assert cancel_requests(place.queue("cancelled").handle, ["1"])["1"].reason == "not needed"


@pytest.mark.parametrize("dialect", DIALECTS[1:])
def test_a_caller_gets_what_has_ended_and_waits_for_the_rest(place: Place, dialect: str) -> None:
    bench = place.bench(f"calls-{dialect}", dialect)
    caller = caller_of(bench)
    calls = caller.calls(["1", "2", "3"], range(3))
    assert caller.add(calls)[0] == 0
    assert [outcome.value for outcome in caller.outcomes(calls).values()] == [b'"done"'] * 2
    bench.work(completed(bench.claim(1), '"later"'))
    assert {outcome.value for outcome in caller.outcomes(calls).values()} == {b'"done"', b'"later"'}


def test_sealed_and_stored_payloads_open(place: Place) -> None:
    queue = place.queue("sealed", **place.sealed)
    jobs = {job.id: job for state in ("wait", "completed") for job in queue.page(state)}
    assert [len(jobs[job_id].data["text"]) for job_id in "123"] == [5, 500, 6]
    assert jobs["3"].returnvalue == "long " * 100
    assert "$sealed" in place.queue("sealed").page("wait")[0].data_text


#: Ends of private keys of which nothing is left, and why.
NOT_LEFT = {
    "spark:rate:limited": "ends with the rate limit",
    "spark:rescue:check": "ends after the interval of the check",
    "spark:stalled:interrupted": "ends after 30 s",
    "spark:expiry:waiting": "is a part of one promotion of many jobs",
    "spark:expiry:position": "is a part of one promotion of many jobs",
    "spark:group:promoted": "is a part of one promotion of many jobs",
    "spark:queue:deleted": "is the time at which a queue was deleted; a ledger only sees that it changes",
    "spark:replicas:mark": "is written anew by each write that waits for replicas",
    "spark:shards:server": "needs several servers, and is the number of one",
    ":early": "needs results that a scan finds before their events",
    "spark:idle:<worker>": "stays empty",
    "spark:pending:<job_id>": "is a member, and no key",
    "spark:relay": "is the beginning of keys",
}


def test_each_private_key_is_left(place: Place) -> None:
    there = [key.decode(errors="replace") for key in place.client.scan_iter(count=1_000)]
    shapes = {one: re.sub(r"\\<[a-z_]+\\>|<[a-z_]+>", "[^/]+", re.escape(one)) for one in private_keys()}
    missing = [one for one, shape in shapes.items() if not any(re.fullmatch(shape, key) for key in there)]
    assert [one for one in missing if not one.endswith(tuple(NOT_LEFT))] == []


OPEN = (*(f"open-{dialect}" for dialect in DIALECTS), "flows", "graph", "scheduled", "managed", "called-back")


@pytest.mark.rest
def test_what_is_unfinished_is_named_and_nothing_lasts_that_no_command_removes(place: Place) -> None:
    named, states = {}, {}
    queues = [place.queue(name, "auto") for name in find_queues(place.queue("q").handle.connection, PREFIX, "*")]
    for queue in queues:
        named[queue.name] = {finding.check for finding in doctor(queue) if finding.level in ("warning", "problem")}
        states[queue.name] = [record.state for record in queue.writes()]
        queue.recover()
        queue.obliterate(force=True)
    assert all("open" in states[name] for name in (*OPEN, "confirmed-a"))
    assert "damaged" in named["damaged"]
    lasting = {
        key.decode().rpartition(":spark:")[2]
        for key in place.client.scan_iter(f"{PREFIX}:*:spark:*")
        if place.client.ttl(key) == -1
    }
    # What users have decided for the queue, whatever becomes of its jobs; and the names of callers.
    assert lasting == {"intake:closed", "shards:layout", "call:open"}
