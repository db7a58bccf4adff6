"""The events of a queue as an iterator, and which are left out by the option `events`, in every dialect."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from redis import Redis

from spark_bull.core.errors import OptionError
from spark_bull.core.model.jobs import NewJob
from spark_bull.core.model.outcomes import Failed, Outcomes, Retried
from spark_bull.core.model.queues import QueueEvent
from spark_bull.core.model.read_jobs import FlowJob
from spark_bull.core.queue.bull_queue import BullQueue
from spark_bull.core.queue.call.caller import Caller
from spark_bull.core.queue.dispatch.roll_forward import roll_forward
from spark_bull.core.queue.events.events import QueueEvents
from spark_bull.core.queue.handle.report import update_progress
from spark_bull.core.queue.work.verbs import stall
from spark_bull.run.services import promoter
from spark_bull.run.worker.local_worker import LocalWorker
from tests.conftest import need
from tests.support.job_order import graph_sink, rows_of
from tests.support.traffic import published
from tests.support.wait import PATIENCE_S, wait_until
from tests.support.work_bench import DIALECTS, WorkBench, each_dialect, only_bullmq
from tests.support.worker import behave
from tests.support.writes import register_all

Open = Callable[..., BullQueue]
not_bullmq = pytest.mark.parametrize("queue", DIALECTS[:2], indirect=True)


@pytest.fixture(autouse=True)
def _channels(redis_kind: str, request: pytest.FixtureRequest) -> None:
    """Redis allows patterns of channels only by their exact text, which differs from test to test."""
    if redis_kind != "plain" and hasattr(request.node, "callspec"):
        dialects = [value for value in request.node.callspec.params.values() if isinstance(value, str)]
        need("bull" not in dialects, "the user may not subscribe to the patterns of Bull 3 and 4")


@each_dialect
def test_no_event_after_the_call_is_missed(queue: BullQueue) -> None:
    queue.add({})
    with queue.events(timeout_s=PATIENCE_S) as events:
        late = [queue.add({"n": n}) for n in range(3)]
        waiting = (event.job_id for event in events if event.event == "waiting")
        assert [next(waiting) for _ in late] == late


@each_dialect
def test_the_iterator_ends_after_the_timeout(queue: BullQueue) -> None:
    with queue.events(timeout_s=0.01) as events:
        assert list(events) == []
        with pytest.raises(StopIteration):
            next(events)


@each_dialect
@pytest.mark.parametrize("by", ["close", "stop"])
def test_another_thread_ends_the_iterator(queue: BullQueue, by: str) -> None:
    stop = threading.Event()
    events = queue.events(stop=stop)
    seen: list[object] = []
    reader = threading.Thread(target=lambda: seen.extend(events))
    reader.start()
    wait_until(lambda: events._reading.locked(), "the thread to read")
    events.close() if by == "close" else stop.set()
    reader.join(PATIENCE_S)
    assert not reader.is_alive()
    assert seen == []


def test_a_reader_that_is_closed_while_it_gets_events_closes_its_connection(
    queue: BullQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = queue.events()
    [source] = events._sources
    read, close, closed = source.read, source.close, threading.Event()

    def read_until_another_thread_closes(wait_s: float) -> list[QueueEvent]:
        found = read(wait_s)
        events.close()
        return found

    def note() -> None:
        close()
        closed.set()

    monkeypatch.setattr(source, "read", read_until_another_thread_closes)
    monkeypatch.setattr(source, "close", note)
    queue.add({})
    assert [event.event for event in events.read(PATIENCE_S)][:1] == ["added"]
    assert closed.is_set()


@only_bullmq
def test_kept_events_are_read_from_the_start_or_after_an_event(bench: WorkBench) -> None:
    bench.add(3)
    with bench.queue.events(start="0", timeout_s=0) as events:
        kept = list(events)
    assert [event.event for event in kept] == ["added", "waiting"] * 3
    assert kept[0].fields == {"name": "__default__"}
    assert kept[0].timestamp == int(str(kept[0].id).partition("-")[0])
    with bench.queue.events(start=kept[3].id, timeout_s=0) as events:
        assert list(events) == kept[4:]


@only_bullmq
def test_a_delayed_event_says_when_the_job_is_due(bench: WorkBench) -> None:
    bench.queue.add({}, delay=3_600_000)
    with bench.queue.events(start="0", timeout_s=0) as events:
        (delayed,) = [event for event in events if event.event == "delayed"]
    assert [job.run_at for job in bench.queue.page("delayed")] == [delayed.run_at]


@each_dialect
def test_wrong_arguments_are_refused_and_a_start_where_no_events_are_kept(queue: BullQueue) -> None:
    said = r"expected `start` to be .* got: 'yest" if queue.protocol == "bullmq" else "expected no `start`: .* keeps no"
    with pytest.raises(OptionError, match=said):
        queue.events(start="yesterday")
    with pytest.raises(OptionError, match="expected `timeout_s` to be a number of seconds >= 0, got: -1"):
        queue.events(timeout_s=-1)


def test_queues_of_all_dialects_are_read_at_once(open_queue: Open, redis_kind: str) -> None:
    dialects = [dialect for dialect in DIALECTS if redis_kind == "plain" or dialect != "bull"]
    queues = [open_queue(dialect, dialect) for dialect in dialects]
    with QueueEvents([queue.handle for queue in queues], timeout_s=PATIENCE_S) as events:
        for queue in queues:
            queue.add({})
        waiting = (event.queue for event in events if event.event == "waiting")
        assert {next(waiting) for _ in queues} == {*dialects}


@not_bullmq
def test_a_message_that_cannot_be_read_is_left_out(client: Redis, queue: BullQueue, prefix: str) -> None:
    with queue.events(timeout_s=PATIENCE_S) as events:
        for channel in (f"{prefix}:q:completed", f"{prefix}:q:progress", "completed@q", "failed@q"):
            for message in ("", "7", "[1]", '{"jobId', "[1, 2]", '["", {"opts": 1}]', "\xff"):
                client.publish(channel, message)
        job_id = queue.add({})
        event = next(event for event in events if event.job_id == job_id)
        assert event.event == "waiting"


HOUR_MS = 3_600_000
STEPS = {"added", "waiting", "waiting-children", "active"}
#: The events of `cause_all`, by dialect; BullMQ 6 has no `debounced`. Bull 1 publishes no `active` and no duplicate.
ALL = {
    "bullmq": {
        *("added", "waiting", "active", "delayed", "duplicated", "progress", "completed", "failed", "stalled"),
        *("retries-exhausted", "deduplicated", "debounced", "waiting-children"),
    },
    "bull": {
        *("waiting", "active", "delayed", "duplicated", "progress", "completed", "failed", "stalled", "debounced"),
    },
    "bull-1": {"waiting", "jobs", "delayed", "progress", "completed", "failed", "stalled"},
}
#: What wakes workers and promoters.
SIGNALS = {"delayed", "jobs"}


@pytest.fixture
def alone(open_queue: Open, prefix: str) -> Open:
    """Opens the queue of a dialect; Bull 1 publishes outside the prefix."""
    return lambda dialect="bullmq", **options: open_queue(f"q-{prefix}", dialect, **options)


@contextmanager
def heard(client: Redis, queue: BullQueue) -> Iterator[set[str]]:
    """The names of the events of a queue, complete when the block is left."""
    names: set[str] = set()
    with published(client, queue.handle.keys.prefix, queue.name) as messages:
        yield names
    names |= {channel.removeprefix(queue.handle.keys.base).partition("@")[0] for channel, _ in messages}
    names |= {fields[b"event"].decode() for _, fields in client.xrange(queue.handle.keys["events"])}


def cause_all(queue: BullQueue, client: Redis) -> None:
    """Adds, claims and settles jobs with each outcome, and lets one stall."""
    bench = WorkBench(queue, client, twice=False)
    queue.add_many([NewJob({}, job_id=f"own-{n}") for n in (1, 1, 2, 3, 4)])
    queue.add({}, delay=HOUR_MS)
    if queue.protocol != "bull-1":
        queue.add_many([NewJob({}, deduplication={"id": "once"})] * 2)
    if queue.protocol == "bullmq":
        queue.add_flow(FlowJob({}, children=[FlowJob({})]))
    claim = bench.claim(4)
    done, failing, retried, stalled = (job.id for job in claim.jobs)
    update_progress(queue.handle, done, "1", lock_token=claim.token)
    outcomes = Outcomes(claim.token, failed=[Failed(failing, "bad", "[]", None, 1)])
    outcomes.complete(done, "1")
    outcomes.retried.append(Retried(retried, "bad", "[]", 0, False))
    bench.work(outcomes)
    stall(queue.handle, claim.token, [stalled], max_stalled=1, since=0)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_the_events_of_a_choice_are_caused_and_no_others(alone: Open, client: Redis, dialect: str) -> None:
    wanted = {"all": ALL[dialect], "ends": ALL[dialect] - STEPS, "none": ALL[dialect] & SIGNALS}
    for events, expected in wanted.items():
        queue = alone(dialect, events=events)
        with heard(client, queue) as names:
            cause_all(queue, client)
        assert names == expected
        queue.obliterate(force=True)


@pytest.mark.parametrize("events", ["ends", None])
def test_a_write_that_another_process_finishes_keeps_its_choice(alone: Open, client: Redis, events: str | None) -> None:
    given = {} if events is None else {"events": events}
    register_all(alone().handle, "w", [[NewJob({}), NewJob({}, delay=HOUR_MS)]], **given)
    queue = alone(events="none")
    with heard(client, queue) as names:
        assert roll_forward(queue.handle, "w").added == 2
    assert names == ({"delayed"} if events else {"added", "waiting", "delayed"})


@pytest.mark.parametrize(("dialect", "events"), [("bull-1", "none"), ("bull", "ends"), ("bullmq", "none")])
def test_a_call_goes_on_with_fewer_events(
    alone: Open, client: Redis, redis_url: str, prefix: str, dialect: str, events: str
) -> None:
    queue = alone(dialect, events=events)
    with heard(client, queue) as names:
        caller = Caller(queue.handle, "caller", keep_ms=HOUR_MS, defaults={})
        calls = caller.calls(['{"$behaviour":"return:7"}'] * 3, range(3))
        caller.add(calls)
        found: dict[str, bytes | None] = {}

        def all_known() -> bool:
            found.update({job_id: outcome.value for job_id, outcome in caller.outcomes(calls).items()})
            return len(found) == 3

        with LocalWorker(queue.name, behave, url=redis_url, prefix=prefix, protocol=dialect, events=events):
            wait_until(all_known, "the results of the calls")
    assert [*found.values()] == [b"7"] * 3
    assert not names & STEPS


@pytest.mark.parametrize("events", ["ends", "none"])
def test_jobs_that_depend_on_others_go_on_with_fewer_events(
    alone: Open, client: Redis, redis_url: str, prefix: str, monkeypatch: pytest.MonkeyPatch, events: str
) -> None:
    """Of jobs that several depend on, a promoter tells the others."""
    monkeypatch.setattr(promoter, "MAX_PAUSE_S", 0.1)
    diamond = {"first": [], "left": ["first"], "right": ["first"], "last": ["left", "right"]}
    options = {"url": redis_url, "prefix": prefix, "protocol": "bullmq", "events": events}
    queue = alone(events=events)
    graph_sink(options | {"queue": queue.name}, rows_of(diamond)).commit()
    with LocalWorker(queue.name, behave, **options), promoter.Promoter(queues=[queue.name], **options):
        wait_until(lambda: queue.counts()["completed"] == 4, "all jobs to complete")
    ends = sorted(queue.page("completed"), key=lambda job: (job.processed_on, job.finished_on))
    assert [ends[0].id, ends[-1].id] == ["first", "last"]
    names = {fields[b"event"].decode() for _, fields in client.xrange(queue.handle.keys["events"])}
    assert names - {"drained"} == ({"completed"} if events == "ends" else set())
