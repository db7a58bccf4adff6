"""The columns `parent` and `children` of a write: rows become children, or flows of several queues."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql.types import ArrayType, IntegerType, LongType, StringType, StructType
from redis import Redis

from spark_bull.core.errors import DialectError, OptionError, SparkBullError
from spark_bull.core.queue.bull_queue import BullQueue
from spark_bull.core.queue.dispatch.flows import TOUCHED
from spark_bull.core.queue.dispatch.registration import register
from spark_bull.core.queue.dispatch.roll_forward import commit, recover
from spark_bull.core.queue.dispatch.write_records import Identity, open_writes
from spark_bull.core.queue.handle.handle import touched_keys
from tests.conformance.written import struct, written
from tests.support.without_spark import Sink
from tests.support.work_bench import WorkBench

QUEUES = ("books", "pages", "words")
each_delivery = pytest.mark.parametrize("delivery", ["exactly-once", "at-least-once"])

TEXT, NUMBER = StringType(), IntegerType()
WORD = struct(queue=TEXT, data=TEXT, onFailure=TEXT)
PAGE = struct(
    queue=TEXT, jobId=TEXT, data=struct(page=NUMBER), onFailure=TEXT, priority=NUMBER, children=ArrayType(WORD)
)
BOOKS = struct(jobId=TEXT, name=TEXT, data=struct(book=NUMBER), children=ArrayType(PAGE))
CHILDREN = struct(jobId=TEXT, data=TEXT, parent=struct(queue=TEXT, id=LongType(), onFailure=TEXT))


@pytest.fixture
def options(redis_url: str, prefix: str) -> Callable[..., dict[str, str]]:
    def options(**given: str) -> dict[str, str]:
        return {"url": redis_url, "prefix": prefix, "queue": "books", "protocol": "bullmq", **given}

    return options


@pytest.fixture
def queues(open_queue: Callable[..., BullQueue]) -> dict[str, BullQueue]:
    return {name: open_queue(name, protocol="bullmq") for name in QUEUES}


def word(text: str, **fields: Any) -> dict[str, Any]:
    return {"queue": "words", "data": json.dumps(text), **fields}


def page(number: int, *words: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"queue": "pages", "data": {"page": number}, "children": list(words) or None, **fields}


def book(number: int, *pages: dict[str, Any] | None, **fields: Any) -> dict[str, Any]:
    return {"jobId": f"b{number}", "data": {"book": number}, "children": list(pages), **fields}


def counts(queues: dict[str, BullQueue]) -> dict[str, dict[str, int]]:
    found = {name: {state: n for state, n in queue.counts().items() if n} for name, queue in queues.items()}
    return {name: states for name, states in found.items() if states}


def public(client: Redis, queues: dict[str, BullQueue]) -> dict[str, dict[str, Any]]:
    """The public keys of each queue, without the counter, which chunks raise."""
    found = {name: WorkBench(queue, client).public() for name, queue in queues.items()}
    return {name: {key: value for key, value in keys.items() if key != "id"} for name, keys in found.items()}


@each_delivery
def test_a_row_with_children_is_a_flow(options: Any, queues: dict[str, BullQueue], prefix: str, delivery: str) -> None:
    written(
        options(delivery=delivery, attempts="2"),
        BOOKS,
        [book(1, page(1, word("a"), word("b", onFailure="ignore"), priority=3, onFailure="fail"), page(2))],
        [book(2), book(3, page(3, jobId="p3"), None, name="bind")],
    )
    assert counts(queues) == {
        "books": {"waiting-children": 2, "wait": 1},
        "pages": {"waiting-children": 1, "wait": 2},
        "words": {"wait": 2},
    }
    (one,) = queues["pages"].page("waiting-children")
    assert (one.data, one.priority, one.parent_key) == ({"page": 1}, 3, f"{prefix}:books:b1")
    parent = {"id": "b1", "queue": f"{prefix}:books"}
    assert one.opts == {"attempts": 2, "priority": 3, "fpof": True, "parent": parent}
    a, b = queues["words"].page("wait")
    assert [job.data for job in (a, b)] == ["a", "b"]
    assert a.opts == {"attempts": 2, "parent": {"id": one.id, "queue": f"{prefix}:pages"}}
    assert b.opts == {**a.opts, "idof": True}
    last = queues["books"].job("b3")
    assert (last.name, last.state) == ("bind", "waiting-children")
    (record,) = queues["books"].writes()
    assert (record.state, record.jobs, record.done, record.added) == ("finished", 8, 8, 8)


@each_delivery
def test_flows_of_several_first_queues_are_one_write(options: Any, queues: dict[str, BullQueue], delivery: str) -> None:
    given = options(delivery=delivery)
    del given["queue"]
    written(
        given,
        StructType([*BOOKS.fields, *struct(queue=TEXT).fields]),
        [book(1, page(1), queue="books"), book(2, page(2, queue=None), queue="words"), book(3, queue="words")],
    )
    assert counts(queues) == {
        "books": {"waiting-children": 1},
        "pages": {"wait": 1},
        "words": {"waiting-children": 1, "wait": 2},
    }


def test_workers_see_each_flow_of_an_exactly_once_write_whole_or_not_at_all(
    options: Any, queues: dict[str, BullQueue], client: Redis
) -> None:
    sink = Sink(options(chunkSize="4"), BOOKS)
    sink.task([book(n, page(1), page(2, word("x"))) for n in range(5)])
    sink.task([book(n, page(1), page(2, word("x"))) for n in range(5, 9)])
    assert not any(public(client, queues).values())
    handle = queues["books"].handle
    plans = sink.plan.queue_plans(sink.messages)
    register(sink.plan.write_id, plans, None)
    touched = touched_keys(handle, ["pages", "words"], TOUCHED)
    position, state = 0, "open"
    while state == "open":
        reply = commit(handle, sink.plan.write_id, position, "commit_flows", touched)
        # A call that is sent again changes nothing.
        assert commit(handle, sink.plan.write_id, position, "commit_flows", touched)[1] == reply.position
        state, position = reply.state, reply.position
        found = counts(queues)
        flows = found["books"]["waiting-children"]
        assert found == {
            "books": {"waiting-children": flows},
            "pages": {"waiting-children": flows, "wait": flows},
            "words": {"wait": flows},
        }
        assert position == 4 * flows
    assert position == 36


def test_a_write_of_flows_that_was_interrupted_is_finished_by_any_process(
    options: Any, queues: dict[str, BullQueue]
) -> None:
    sink = Sink(options(chunkSize="2"), BOOKS, Identity("app", 1))
    sink.task([book(n, page(n)) for n in range(5)])
    register(sink.plan.write_id, sink.plan.queue_plans(sink.messages), Identity("app", 1))
    books = queues["books"].handle
    commit(books, sink.plan.write_id, 0, "commit_flows", touched_keys(books, ["pages"], TOUCHED))
    (record,) = recover(queues["books"].handle)
    assert (record.jobs, record.added, record.state) == (10, 10, "finished")
    assert open_writes(queues["books"].handle) == []
    assert counts(queues) == {"books": {"waiting-children": 5}, "pages": {"wait": 5}}
    # A repeated write adds nothing.
    again = Sink(options(chunkSize="2"), BOOKS, Identity("app", 1))
    again.task([book(n, page(n)) for n in range(5)])
    again.commit()
    assert counts(queues)["pages"] == {"wait": 5}


BAD_CHILDREN: list[tuple[list[dict[str, Any]], str]] = [
    ([book(1), book(2, page(1), page(2, jobId="7"))], r"row 1, children\[1\]: expected `jobId` not to be an integer"),
    ([book(1, page(1, word("x", data="{")))], r"row 0, children\[0\], children\[0\]: expected `data` to be JSON"),
    (
        [book(1, page(1, word("x", data=None)))],
        r"row 0, children\[0\], children\[0\]: expected `data` to be JSON, got N",
    ),
    ([book(1, page(1, jobId="taken"))], r"row 0, children\[0\], column `parent`: expected a job without another"),
    ([book(1, page(1, queue="old"))], "expected queue old to speak bullmq"),
]


@each_delivery
def test_bad_children_are_refused_before_anything_is_visible(
    options: Any, queues: dict[str, BullQueue], client: Redis, prefix: str, delivery: str
) -> None:
    queues["pages"].add({}, job_id="taken", parent={"queue": "words", "id": queues["words"].add({})})
    client.sadd(f"{prefix}:old:completed", "1")
    before = public(client, queues)
    for rows, said in BAD_CHILDREN:
        sink = Sink(options(delivery=delivery), BOOKS)
        with pytest.raises(SparkBullError, match=said):
            sink.task(rows)
        sink.abort()
        assert public(client, queues) == before


def test_jobs_whose_parent_is_gone_or_another_one_by_the_time_of_the_commit_are_not_added(
    options: Any, queues: dict[str, BullQueue]
) -> None:
    sink = Sink(options(), BOOKS)
    sink.task([book(1, page(1, word("a"), jobId="taken"), page(2)), book(2, page(3))])
    queues["pages"].add({}, job_id="taken", parent={"queue": "words", "id": queues["words"].add({})})
    sink.commit()
    (record,) = queues["books"].writes()
    assert (record.jobs, record.added, record.rejected, record.done) == (6, 2, 4, 6)
    assert counts(queues) == {"books": {"waiting-children": 1}, "pages": {"wait": 2}, "words": {"wait": 1}}
    parent = queues["pages"].add({})
    sink = Sink(options(), CHILDREN)
    sink.task([{"data": "{}", "parent": {"queue": "pages", "id": int(parent)}}, {"data": "{}", "parent": None}])
    queues["pages"].remove(parent)
    sink.commit()
    assert (queues["books"].writes()[-1].added, queues["books"].writes()[-1].rejected) == (1, 1)


def without_ids(*books: dict[str, Any]) -> list[dict[str, Any]]:
    return [{**one, "jobId": None} for one in books]


def test_a_repeated_task_adds_each_flow_and_each_of_its_jobs_once(options: Any, queues: dict[str, BullQueue]) -> None:
    sink = Sink(options(delivery="at-least-once", chunkSize="2"), BOOKS)
    same = book(1, page(1, word("a"), word("a")), page(1, word("a")))
    rows = [*without_ids(same, same, book(2)), book(3, page(3), page(3))]
    sink.attempt(rows[:2])
    sink.attempt(rows)
    sink.task(rows)
    sink.task(without_ids(same))
    sink.commit()
    assert counts(queues) == {
        "books": {"waiting-children": 4, "wait": 1},
        "pages": {"waiting-children": 6, "wait": 2},
        "words": {"wait": 9},
    }
    (record,) = queues["books"].writes()
    assert (record.jobs, record.added, record.duplicates) == (22, 6, 16)
    found = [job for queue in queues.values() for state in ("waiting-children", "wait") for job in queue.page(state)]
    assert [job.id for job in found if not re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", job.id)] == ["b3"]


def test_rows_that_come_in_another_order_when_a_task_is_repeated_are_all_added(
    options: Any, queues: dict[str, BullQueue]
) -> None:
    sink = Sink(options(delivery="at-least-once"), BOOKS)
    rows = without_ids(*(book(n, page(n)) for n in range(5)))
    sink.attempt(rows[:3])
    sink.task(rows[::-1])
    assert {job.data["book"] for job in queues["books"].page("waiting-children")} == set(range(5))


def test_a_repeated_task_leaves_flows_alone_that_workers_have_begun(
    options: Any, queues: dict[str, BullQueue], client: Redis
) -> None:
    sink = Sink(options(delivery="at-least-once"), BOOKS)
    rows = without_ids(book(1, page(1, onFailure="ignore"), page(2)), book(2, page(3)), book(3, page(4)))
    sink.attempt(rows)
    books, pages = queues["books"], queues["pages"]
    one, two, three, four = sorted(pages.page("wait"), key=lambda job: str(job.data))
    pages.fail(one.id, "torn")
    pages.complete(three.id)
    pages.complete(four.id)
    (last,) = (job for job in books.page("wait") if job.data == {"book": 3})
    books.remove(last.id, with_children=False)
    begun = public(client, queues)
    sink.task(rows)
    assert public(client, queues) == begun
    pages.complete(two.id)
    assert counts(queues) == {"books": {"wait": 2}, "pages": {"completed": 3, "failed": 1}}


def test_a_repeated_task_adds_the_children_of_a_parent_and_of_a_callback_once(
    options: Any, queues: dict[str, BullQueue]
) -> None:
    parent = queues["books"].add({}, job_id="b1")
    given = options(delivery="at-least-once", queue="pages", chunkSize="2")
    rows = [{"jobId": None, "data": "{}", "parent": {"queue": "books", "id": "b1"}} for _ in range(3)]
    for options_of_write, schema in (
        (given, struct(jobId=TEXT, data=TEXT, parent=struct(queue=TEXT, id=TEXT))),
        (given | {"onFinish": json.dumps({"queue": "words"})}, struct(jobId=TEXT, data=TEXT)),
    ):
        sink = Sink(options_of_write, schema)
        given_rows = [{name: row[name] for name in schema.names} for row in rows]
        sink.attempt(given_rows[:2])
        first = queues["pages"].page("wait")[0]
        queues["pages"].complete(first.id)
        sink.task(given_rows)
        sink.commit()
        assert queues["pages"].counts()["wait"] == 2
        queues["pages"].drain()
        queues["pages"].clean()
    assert queues["books"].job(parent) is not None


def test_a_column_of_a_wrong_type_is_refused(options: Any) -> None:
    for column, said in (
        (TEXT, "expected column `children` to be ARRAY<STRUCT<data"),
        (ArrayType(struct(queue=TEXT)), "column `children`: expected a field `data`"),
        (ArrayType(struct(data=TEXT, dta=TEXT)), "`children`: unknown column `dta`"),
        (ArrayType(struct(data=TEXT, children=TEXT)), "ARRAY<STRUCT<data"),
    ):
        with pytest.raises(OptionError, match=said):
            Sink(options(), struct(data=TEXT, children=column))
    for schema in (BOOKS, CHILDREN):
        with pytest.raises(DialectError, match=r"column `.*`: jobs of bull have no children and no parents; leave"):
            Sink(options(protocol="bull"), schema)


@each_delivery
def test_rows_with_a_parent_are_its_children(
    options: Any, queues: dict[str, BullQueue], prefix: str, delivery: str
) -> None:
    parent = int(queues["pages"].add({}))
    rows = [{"data": "{}", "parent": {"queue": "pages", "id": parent, "onFailure": "remove"}} for _ in range(5)]
    written(options(delivery=delivery, chunkSize="2"), CHILDREN, [*rows, {"data": "{}", "parent": None}])
    jobs = queues["books"].page("wait")
    assert [job.parent_key for job in jobs] == [f"{prefix}:pages:{parent}"] * 5 + [None]
    assert jobs[0].opts == {"attempts": 0, "rdof": True, "parent": {"id": str(parent), "queue": f"{prefix}:pages"}}
    children = {(one.child_id, one.state) for one in queues["pages"].dependencies(str(parent))}
    assert children == {(job.id, "unprocessed") for job in jobs[:5]}


@each_delivery
def test_a_row_whose_parent_is_missing_or_depends_on_it_is_refused_before_anything_is_visible(
    options: Any, queues: dict[str, BullQueue], prefix: str, delivery: str
) -> None:
    queues["books"].add({}, job_id="top")
    parent = int(queues["pages"].add({}, parent={"queue": "books", "id": "top"}))
    for names, ids, said in (
        ([None, None], [parent, parent + 1], "expected the parent of the job to exist.*:pages:2"),
        (
            ["new", "top"],
            [parent, parent],
            f"expected a parent that does not depend on the job itself.*{prefix}:books:top",
        ),
    ):
        sink = Sink(options(delivery=delivery, chunkSize="1"), CHILDREN)
        rows = [
            {"jobId": name, "data": "{}", "parent": {"queue": "pages", "id": job_id}}
            for name, job_id in zip(names, ids, strict=True)
        ]
        with pytest.raises(OptionError, match=f"row 1, column `parent`: {said}"):
            sink.task(rows)
        assert counts(queues) == {"books": {"wait": 1}, "pages": {"wait": 1}}


@each_delivery
def test_first_jobs_of_flows_can_be_the_children_of_a_callback(
    options: Any, queues: dict[str, BullQueue], delivery: str
) -> None:
    written(
        options(delivery=delivery, onFinish='{"queue": "words", "name": "all"}'), BOOKS, [book(1, page(1)), book(2)]
    )
    (callback,) = queues["words"].page("waiting-children")
    assert callback.name == "all"
    jobs = [queues["books"].job(f"b{n}") for n in (1, 2)]
    keys = {f"{queues['words'].handle.keys.base}{callback.id}"}
    assert {job and job.parent_key for job in jobs} == keys
    (child,) = queues["pages"].page("wait")
    assert child.parent_key == queues["books"].handle.keys.job("b1")
