"""Adding flows. Every script is sent again after its reply, as if the reply had been lost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from redis import Redis

from spark_bull.core.dialects.encode import flows as flows_module
from spark_bull.core.errors import DialectError, OptionError, ParentError
from spark_bull.core.model.read_jobs import AddedFlow, FlowJob
from spark_bull.core.queue.bull_queue import BullQueue
from tests.support.traffic import send_scripts_twice
from tests.support.work_bench import WorkBench

QUEUES = ("books", "pages", "words")


@pytest.fixture(autouse=True)
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the scripts that were sent, without repetitions."""
    return send_scripts_twice(monkeypatch, alike=True)


@dataclass
class Bench:
    """Queues of one prefix."""

    client: Redis
    prefix: str
    open_queue: Callable[..., BullQueue]

    def queue(self, queue: str = "books", **options: Any) -> BullQueue:
        return self.open_queue(queue, "bullmq", **options)

    def add(self, flow: FlowJob) -> AddedFlow:
        return self.queue().add_flow(flow)

    def key(self, queue: str, job_id: str) -> str:
        return f"{self.prefix}:{queue}:{job_id}"

    def children(self, queue: str, job_id: str) -> set[str]:
        return {key.decode() for key in self.client.smembers(f"{self.key(queue, job_id)}:dependencies")}

    def public(self) -> dict[str, dict[str, Any]]:
        return {name: WorkBench(self.queue(name), self.client).public() for name in QUEUES}


@pytest.fixture
def bench(client: Redis, prefix: str, open_queue: Callable[..., BullQueue]) -> Bench:
    return Bench(client, prefix, open_queue)


def book(*pages: FlowJob, **properties: Any) -> FlowJob:
    return FlowJob({"book": 1}, "bind", children=pages, **properties)


def page(n: int = 1, *words: FlowJob, **properties: Any) -> FlowJob:
    return FlowJob({"page": n}, "print", children=words, **{"queue": "pages"} | properties)


def test_the_children_of_a_job_are_in_its_queue_unless_they_name_one(bench: Bench) -> None:
    added = bench.add(book(page(1, FlowJob({})), FlowJob({}, queue="words", children=[FlowJob({})])))
    queues = [(child.queue, [inner.queue for inner in child.children]) for child in added.children]
    assert queues == [("pages", ["pages"]), ("words", ["words"])]


def test_many_flows_are_added_in_chunks_that_have_whole_flows(bench: Bench, calls: list[str]) -> None:
    queue = bench.queue(chunk_size=10)
    added = queue.add_flows(book(*(page(n) for n in range(3)), job_id=f"b{n}") for n in range(7))
    assert [flow.id for flow in added] == [f"b{n}" for n in range(7)]
    assert all(len(bench.children("books", flow.id)) == 3 for flow in added)
    # Two flows of four jobs fit into a chunk.
    assert calls.count("bullmq/add_flows") == 4
    large = bench.queue("pages", chunk_size=2).add_flow(book(*(page(n) for n in range(5))))
    assert len(bench.children("pages", large.id)) == 5
    assert queue.add_flows([]) == []


def test_a_flow_that_can_t_be_added_whole_is_not_added_at_all(bench: Bench) -> None:
    bench.queue("pages").add({}, job_id="alone")
    bench.add(book(page(job_id="taken")))
    before = bench.public()
    with pytest.raises(ParentError, match=r"^children\[1\], children\[2\]: expected a job without another parent"):
        bench.add(book(page(), page(2, page(), page(), page(job_id="taken"), queue="words"), page(job_id="alone")))
    with pytest.raises(ParentError, match=r"^expected the parent of the job to exist"):
        bench.add(book(page(), parent={"queue": "words", "id": "none", "onFailure": "fail"}))
    assert bench.public() == before
    # The other flows of the call are added.
    flows = [book(page(job_id=name), job_id=f"of-{name}") for name in ("alone", "taken", "new")]
    with pytest.raises(ParentError, match=r"^flow 1, children\[0\]"):
        bench.queue().add_flows(flows)
    assert bench.children("books", "of-alone") == {bench.key("pages", "alone")}
    assert bench.children("books", "of-new") == {bench.key("pages", "new")}
    assert not bench.client.exists(bench.key("books", "of-taken"))


def test_a_job_can_t_be_a_child_in_two_flows_of_one_call(bench: Bench) -> None:
    flows = [book(page(job_id="p"), job_id="first"), book(page(1, page(job_id="p", queue="pages")), job_id="second")]
    with pytest.raises(ParentError, match=r"^flow 1, children\[0\], children\[0\]: expected a job without another"):
        bench.queue().add_flows(flows)
    assert bench.children("books", "first") == {bench.key("pages", "p")}
    assert not bench.client.exists(bench.key("books", "second"))


def test_a_job_never_becomes_its_own_ancestor(bench: Bench) -> None:
    books = bench.queue()
    books.add({}, job_id="a")
    books.add({}, job_id="b", parent={"queue": "books", "id": "a"})
    before = bench.public()
    for flow in (
        book(FlowJob({}, job_id="a"), parent={"queue": "books", "id": "b"}),
        book(page(1, FlowJob({}, queue="books", job_id="a")), job_id="b"),
    ):
        with pytest.raises(ParentError, match="expected a parent that does not depend on the job itself"):
            bench.add(flow)
    assert bench.public() == before


def test_the_id_of_a_deduplicated_flow_is_that_of_the_job_that_is_kept(bench: Bench) -> None:
    kept = bench.add(book(deduplication="x"))
    other = bench.add(book(page()))
    assert [flow.id for flow in bench.queue().add_flows([book(job_id="new"), book(deduplication="x")])] == [
        "new",
        kept.id,
    ]
    assert other.id != kept.id


def test_bad_flows_are_refused_before_anything_is_added(bench: Bench) -> None:
    circular = FlowJob({}, children=[])
    circular.children.append(circular)
    for flow, said in (
        (book(page(), deduplication="x"), "^expected no `deduplication` of a job with children"),
        (book(page(1, page(), deduplication="x")), r"^children\[0\]: .*a child can't be deduplicated"),
        (book(page(job_id="7")), r"^children\[0\]: expected `jobId` not to be an integer"),
        (book(page(parent={"queue": "books", "id": "x"})), r"^children\[0\]: expected no `parent` of a child"),
        (book(page(on_failure="stop")), r"^children\[0\]: expected `parent.onFailure` to be one of wait, fail"),
        (book(page(), page(2, job_id="x"), page(job_id="x")), r"^children\[2\]: .*no other job of the flow has"),
        (book(page(queue="a:b")), "expected `queue` without ':'"),
        (book(page(queue=7)), "expected `queue` to be the name of a queue, got: 7"),
        (book(page(), on_failure="fail"), "expected no `on_failure` of the first job"),
        (book(page(opts={"failParentOnFailure": True}, on_failure="ignore")), "they exclude each other"),
        (circular, "does a job contain itself"),
    ):
        with pytest.raises(OptionError, match=said):
            bench.add(flow)
    assert not any(bench.public().values())


def test_a_flow_that_is_too_large_for_one_script_is_refused(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flows_module, "MAX_JOBS", 5)
    bench.add(book(*(page(n) for n in range(4))))
    with pytest.raises(OptionError, match=r"^expected a flow of at most 5 jobs .* got 6 jobs"):
        bench.add(book(*(page(n) for n in range(5))))
    monkeypatch.setattr(flows_module, "MAX_FLOW_SIZE", 10)
    with pytest.raises(OptionError, match=r"10 characters of payload, got 2 jobs and 20 characters"):
        bench.add(book(page(1)))


@pytest.mark.parametrize("queue", ["bull-1", "bull"], indirect=True)
def test_queues_of_bull_have_no_flows(queue: BullQueue, client: Redis, prefix: str) -> None:
    for call in (
        lambda: queue.add_flow(FlowJob({})),
        lambda: queue.dependencies("1"),
        lambda: queue.dependency_counts("1"),
        lambda: queue.get_flow("1"),
    ):
        with pytest.raises(DialectError, match=f"jobs of {queue.protocol} have no children"):
            call()
    assert not list(client.scan_iter(match=f"{prefix}:*"))


def test_a_child_in_a_queue_of_bull_is_refused(bench: Bench) -> None:
    bench.client.sadd(bench.key("pages", "completed"), "1")
    with pytest.raises(DialectError, match="expected queue pages to speak bullmq"):
        bench.add(book(page()))


def test_all_queues_of_a_flow_are_in_one_slot_of_a_cluster(bench: Bench) -> None:
    queue = bench.queue("{x}books")
    with pytest.raises(OptionError, match=r"expected the queue of a child to have the hash tag \{x\}"):
        queue.add_flow(book(page(queue="{y}pages")))
    assert queue.add_flow(book(page(queue="{x}pages"))).children[0].queue == "{x}pages"


def test_the_defaults_of_the_queue_apply_to_all_jobs_of_a_flow(bench: Bench) -> None:
    added = bench.queue(attempts=3, name="part").add_flow(FlowJob({}, children=[page(attempts=1), FlowJob({})]))
    jobs = [bench.queue(flow.queue).job(flow.id) for flow in (added, *added.children)]
    assert [(job.name, job.opts["attempts"]) for job in jobs if job] == [("part", 3), ("print", 1), ("part", 3)]


def test_the_children_of_a_job_are_read_up_to_a_limit(bench: Bench) -> None:
    added = bench.add(book(*(page(n) for n in range(600))))
    dependencies = bench.queue().dependencies(added.id)
    assert {one.child_id for one in dependencies} == {child.id for child in added.children}
    with pytest.raises(OptionError, match=r"at most 599 children of job .* of queue books, found 600"):
        bench.queue().dependencies(added.id, limit=599)
    assert bench.queue().dependencies("none") == []
    assert set(bench.queue().dependency_counts("none").values()) == {0}


def test_a_flow_is_read_level_by_level_until_a_bound(bench: Bench) -> None:
    words = [[FlowJob({}, queue="words", job_id=f"w{n}-{m}") for m in "ab"] for n in range(3)]
    bench.add(book(*(page(n, *words[n], job_id=f"p{n}") for n in range(3)), job_id="book"))
    queue = bench.queue()

    def ids(**bounds: int) -> list[str]:
        found = queue.get_flow("book", **bounds)
        return sorted(node.id for node in found.walk())

    assert (ids(max_depth=1), ids(max_jobs=1)) == (["book"], ["book"])
    # All levels but the last one are whole.
    assert len(ids(max_jobs=6)) == 6
    assert ids(max_jobs=6)[:4] == ["book", "p0", "p1", "p2"]
    bench.client.delete(bench.key("words", "w1-a"))
    found = queue.get_flow("book", max_jobs=3)
    assert (found.child_count, len(found.children), found.job and found.job.data) == (3, 2, {"book": 1})
    whole = queue.get_flow("book")
    nodes = {node.id: node for node in whole.walk()}
    lost = nodes["w1-a"]
    assert (lost.queue, lost.depth, lost.job, lost.dependency) == ("words", 2, None, "unprocessed")
    assert (lost.parent_queue, lost.parent_id) == ("pages", "p1")
    assert [node.id for node in [*whole.walk()][:2]] == ["book", whole.children[0].id]
    assert queue.get_flow("nobody") is None
    for bounds in ({"max_depth": 0}, {"max_jobs": True}):
        with pytest.raises(OptionError, match="to be an integer >= 1"):
            queue.get_flow("book", **bounds)


def test_a_cycle_of_damaged_jobs_is_read_once(bench: Bench) -> None:
    bench.add(FlowJob({}, job_id="a", children=[FlowJob({}, job_id="b")]))
    bench.client.sadd(f"{bench.key('books', 'b')}:dependencies", bench.key("books", "a"))
    found = bench.queue().get_flow("a")
    assert [node.id for node in found.walk()] == ["a", "b"]


def test_a_child_under_another_prefix_is_named_with_it(bench: Bench) -> None:
    bench.add(FlowJob({}, job_id="a", children=[FlowJob({}, job_id="b")]))
    other = bench.queue("pages", prefix=f"{bench.prefix}-2")
    other.add({}, job_id="c")
    bench.client.sadd(f"{bench.key('books', 'b')}:dependencies", other.handle.keys.job("c"))
    last = [*bench.queue().get_flow("a").walk()][-1]
    assert (last.queue, last.id, last.job is not None) == (f"{bench.prefix}-2:pages", "c", True)
