"""Job schedulers made by Node continue with our worker as with a Node worker: after each iteration all keys are equal.

Jobs are promoted before they are due, so that no test waits; the next job is due an interval later anyway.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import md5
from typing import Any

import pytest
from redis import Redis

from spark_bull import NewJob, WrongState
from spark_bull.core.model.limits import WorkSettings
from spark_bull.core.model.outcomes import Claim
from spark_bull.core.queue.bull_queue import BullQueue
from spark_bull.core.queue.handle.handle import QueueHandle
from spark_bull.core.queue.schedule.advance import ADVANCE_SIZE
from spark_bull.core.queue.schedule.schedulers import encoder_of, without_next_job
from spark_bull.core.queue.work import claim as claims
from spark_bull.core.queue.work.claim_ledger import ClaimLedger
from spark_bull.run.claims.claimer import Claimer
from tests.support.dump import Dump, difference, dump
from tests.support.jobs import DAY, HOUR
from tests.support.node import NodePeer, Peer, each_peer_of
from tests.support.pair import Pair
from tests.support.schedule_rounds import (
    SCHEDULING,
    Rounds,
    Schedule,
    each_bullmq,
    each_peer,
    each_schedule,
)
from tests.support.wait import wait_until
from tests.support.work_bench import CLAIM_SETTINGS

#: Member, options of `repeat`, payload.
OlderJob = tuple[str, dict[str, Any], dict[str, Any]]


def make_older(client: Redis, handle: QueueHandle, job: OlderJob) -> str:
    """Makes a repeatable job and its next job, whose id is returned."""
    member, repeat, data = job
    # Later, as a worker would start it at once.
    due = (int(time.time() * 1000) // DAY + 1) * DAY
    keys, name = handle.keys, member.split(":")[0]
    own = repeat.get("key") or md5_of(f"{name}{repeat.get('jobId', '')}{md5_of(member)}")
    job_id = f"repeat:{own}:{due}"
    opts = {"repeat": {**repeat, "count": 1}, "prevMillis": due, "jobId": job_id, "delay": 5, "attempts": 0}
    fields = {
        "name": name,
        "data": json.dumps(data, separators=(",", ":")),
        "opts": json.dumps(opts),
        "timestamp": 1,
        "delay": 5,
    }
    client.hset(keys.job(job_id), mapping={**fields, "priority": 0, "rjk": member})
    client.zadd(keys["delayed"], {job_id: due * 4096})
    client.zadd(keys["repeats"], {member: due})
    return job_id


def md5_of(text: str) -> str:
    return md5(text.encode()).hexdigest()


StartNode = Callable[..., NodePeer]

#: What only Node makes; test_schedulers.py compares all others.
SCHEDULES = {
    "every hour": Schedule({"every": HOUR}),
    "at once": Schedule({"pattern": "0 0 12 * * *", "immediately": True}, bullmq_only=True),
    "what fails once": Schedule({"every": HOUR}, {"$behaviour": "fail:1"}, {"attempts": 2}),
    "an own id": Schedule({"every": HOUR}, {}, opts={"keepLogs": 3, "jobId": "own"}, bullmq_only=True),
}


#: Repeatable jobs as BullMQ 5.9 stores them: member, options of `repeat`, payload.
OLDER: dict[str, OlderJob] = {
    "an interval": ("task::::3600000", {"every": HOUR}, {}),
    "a limit": ("task::::3600000", {"every": HOUR, "limit": 2}, {}),
    "an own id": (
        "task:mine::Europe/Berlin:0 3 * * *",
        {"pattern": "0 3 * * *", "tz": "Europe/Berlin", "jobId": "mine"},
        {},
    ),
    "a custom key": ("task::::0 0 4 * * *", {"pattern": "0 0 4 * * *", "key": "custom"}, {"id": "of data"}),
    "an end": ("task::4102444800000::0 0 4 * * *", {"pattern": "0 0 4 * * *", "endDate": 4102444800000}, {"id": 7}),
    "immediately": ("task::::3600000", {"every": HOUR, "offset": 1_234_567}, {}),
}


@each_schedule(SCHEDULES)
def test_a_scheduler_continues_as_in_node(pair: Pair, peer: Peer, name: str) -> None:
    one = Rounds(pair, SCHEDULES[name])
    one.make()
    one.stay_alike(one.schedule.rounds)


@pytest.mark.parametrize("peer", [peer for peer in SCHEDULING if peer.alias.startswith("bullmq-5")], ids=str)
def test_a_repeatable_job_of_bullmq_5_continues_as_in_node(pair: Pair, peer: Peer) -> None:
    """Its `add` with the option `repeat` creates keys that its workers treat as a job scheduler."""
    one = Rounds(pair, Schedule({"every": HOUR}))
    job = {"name": "task", "data": {"$behaviour": "return:1"}, "opts": {"repeat": {"every": HOUR, "limit": 4}}}
    for queue in one.queues.values():
        one.pair.node.call("add", queue=queue.name, jobs=[job])
    one.stay_alike(5)


@pytest.mark.parametrize("peer", [peer for peer in SCHEDULING if peer.alias.startswith("bullmq-5")], ids=str)
@pytest.mark.parametrize("older", OLDER)
def test_a_repeatable_job_of_bullmq_5_9_continues_as_in_node(pair: Pair, peer: Peer, older: str) -> None:
    one = Rounds(pair, Schedule({}))
    for queue in one.queues.values():
        make_older(one.pair.client, queue.handle, OLDER[older])
    one.stay_alike(3)


@pytest.mark.parametrize("older", OLDER)
def test_a_repeatable_job_of_bullmq_5_9_can_be_run_changed_and_removed(
    queue: BullQueue, client: Redis, prefix: str, older: str
) -> None:
    member, repeat, _ = OLDER[older]
    for change in (True, False):
        next_id = make_older(client, queue.handle, OLDER[older])
        [shown] = queue.schedulers()
        assert shown.id == repeat.get("jobId", member)
        assert [*without_next_job(queue.handle)] == []
        with pytest.raises(WrongState, match="scheduler"):
            queue.remove(next_id)
        copy = queue.job(queue.run_scheduler(shown.id))
        assert copy.name == "task"
        if change:
            replaced = encoder_of(queue.handle).encode({"id": shown.id, "every": DAY}, 1)[1]["replaces"]
            assert [each for each, _ in replaced] == [member] * (shown.id != member)
            queue.upsert_scheduler(shown.id, every=DAY, offset=1)
            assert [(one.id, one.every) for one in queue.schedulers()] == [(shown.id, DAY)]
            assert queue.job(next_id) is None
        assert queue.remove_scheduler(shown.id)
        assert [*queue.schedulers()] == []
        assert queue.counts()["delayed"] == 0
        assert not client.keys(f"{prefix}:q:repeat*")


@each_peer
def test_a_scheduler_ends_at_its_end_date(pair: Pair, peer: Peer) -> None:
    # Late enough for a busy machine to make the job scheduler before.
    end = int(time.time() * 1000) + 5_000
    one = Rounds(pair, Schedule({"every": HOUR, "endDate": end}))
    one.make()
    one.promote()
    wait_until(lambda: time.time() * 1000 > end + 50, "the last day to be over")
    with one.workers():
        one.settled()
    one.assert_alike()
    assert [one.delayed(queue) for queue in one.queues.values()] == [[], []]


@each_bullmq
def test_a_deduplication_id_has_no_effect_in_node(pair: Pair, peer: Peer) -> None:
    """So it is refused here: a job that is dropped could not continue its job scheduler."""
    one = Rounds(pair, Schedule({"every": HOUR}, opts={"deduplication": {"id": "same"}}))
    left = one.queues["left"]
    for one.scheduler in ("first", "second"):
        one.make()
    with one.workers():
        one.settled()
    assert [job_id.split(":")[1] for job_id in sorted(one.delayed(left))] == ["first", "second"]
    assert left.counts()["completed"] == 2
    for job in [*left.page("completed"), *left.page("delayed")]:
        assert (job.opts["de"], job.deduplication_id) == ({"id": "same"}, "same")
    client, keys = one.pair.client, left.handle.keys
    assert not client.exists(f"{keys.base}de:same")
    assert json.loads(client.hget(keys.scheduler("first"), "opts") or "{}")["de"] == {"id": "same"}
    one.assert_alike()


@each_peer
def test_a_removed_scheduler_ends(pair: Pair, peer: Peer) -> None:
    one = Rounds(pair, Schedule({"every": HOUR}))
    one.make()
    one.promote()
    one.remove()
    with one.workers():
        one.settled()
    one.assert_alike()
    assert [one.delayed(queue) for queue in one.queues.values()] == [[], []]


@each_peer
def test_a_scheduler_continues_after_a_pause(pair: Pair, peer: Peer) -> None:
    one = Rounds(pair, Schedule({"every": HOUR}))
    one.make()
    one.invoke("pause")
    one.promote()
    one.invoke("resume")
    with one.workers():
        one.settled()
        one.assert_alike()
        one.promote()
        one.settled()
    one.assert_alike()


@each_peer
def test_an_existing_next_job_is_not_changed(pair: Pair, peer: Peer) -> None:
    """Another job has its id."""
    one = Rounds(pair, Schedule({"pattern": "0 0 12 * * *", "tz": "UTC"}))
    one.make()
    for queue in one.queues.values():
        head, _, due = one.delayed(queue)[0].rpartition(":")
        opts = {"jobId": f"{head}:{int(due) + DAY}"}
        one.pair.node.call(
            "add", queue=queue.name, jobs=[{"name": "other", "data": {"$behaviour": "return:9"}, "opts": opts}]
        )
    one.promote()
    with one.workers():
        one.settled()
    one.assert_alike()


# without a comparison with Node


@dataclass
class Board:
    """A queue with hourly job schedulers made by a Node library, whose jobs the test claims itself."""

    queue: BullQueue
    node: NodePeer
    client: Redis
    peer: Peer

    def make(self, *names: str, **repeat: Any) -> None:
        given = {"every": HOUR, **repeat}
        for name in names:
            if self.peer.dialect == "bullmq":
                template = {"name": name, "data": {"of": name}}
                self.node.call(
                    "invoke", queue=self.queue.name, method="upsertJobScheduler", args=[name, given, template]
                )
            else:
                job = {"name": name, "data": {"of": name}, "opts": {"repeat": given}}
                self.node.call("add", queue=self.queue.name, jobs=[job])

    def let_wait(self) -> None:
        """Promotes all delayed jobs."""
        for job_id in self.ids("delayed"):
            self.queue.promote(job_id)

    def ids(self, state: str) -> list[str]:
        key = self.queue.handle.keys[state]
        found = self.client.lrange(key, 0, -1) if state in ("wait", "active") else self.client.zrange(key, 0, -1)
        return sorted(job_id.decode() for job_id in found)

    def dump(self) -> Dump:
        return dump(self.client, self.queue.handle.keys.prefix, "q")

    def claimer(self) -> Claimer:
        """The claimer of a claiming query."""
        return Claimer(ClaimLedger(self.queue.handle, "reader"), WorkSettings("reader", 20_000), 500)

    def claim(self, limit: int = 1000, call: str = "") -> Claim:
        return claims.work(self.queue.handle, CLAIM_SETTINGS, None, limit, call=call)


@pytest.fixture
def board(peer: Peer, node: StartNode, client: Redis, redis_url: str, prefix: str) -> Iterator[Board]:
    with BullQueue("q", url=redis_url, prefix=prefix, protocol=peer.dialect) as queue:
        yield Board(queue, node(peer.alias, prefix=prefix), client, peer)


@each_peer
def test_a_repeated_claim_advances_a_scheduler_once(board: Board, peer: Peer) -> None:
    board.make("one", "two")
    board.let_wait()
    first = board.claim(call="the same")
    before = board.dump()
    again = board.claim(call="the same")
    assert [job.id for job in again.jobs] == [job.id for job in first.jobs]
    assert difference(before, board.dump()) == []
    assert len(board.ids("delayed")) == len(first.jobs) == 2


class Killed(Exception):
    """Stands for a process that dies."""


@contextmanager
def dying_after_claim(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A process that claims in the block dies after the claim."""

    def killed(*_: Any, **__: Any) -> None:
        raise Killed

    with monkeypatch.context() as dying:
        dying.setattr(claims, "advance", killed)
        with pytest.raises(Killed):
            yield


@each_peer
def test_a_restarted_claiming_query_continues_the_scheduler(
    board: Board, peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    board.make("one")
    board.let_wait()
    with dying_after_claim(monkeypatch):
        board.claimer().claim(10)
    assert (board.claimer().end(), board.ids("delayed")) == (1, [])
    for _ in range(2):
        board.claimer().take_up(0, 1)
        assert len(board.ids("delayed")) == 1


@each_peer
def test_a_query_whose_claim_got_no_reply_continues_the_scheduler(
    board: Board, peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    board.make("one")
    claimer = board.claimer()
    board.queue.add({"n": 1})
    assert claimer.claim(10) >= 1
    taken = claimer.end()
    board.let_wait()
    with dying_after_claim(monkeypatch):
        claimer.claim(10)
    claimer.take_up(taken, claimer.end())
    assert len(board.ids("delayed")) == 1
    board.let_wait()
    assert claimer.claim(10) == 1
    assert len(board.ids("delayed")) == 1, "a claim that ends continues it, too"


@each_peer_of("bull")
def test_an_early_job_that_is_claimed_again_does_not_restart_an_ended_scheduler(board: Board, peer: Peer) -> None:
    """The job scheduler has reached its limit, which the options of an early job do not show."""
    board.make("one", limit=2)
    board.let_wait()
    (first,) = board.claim().jobs
    board.let_wait()
    board.claim()
    assert board.ids("delayed") == []
    board.client.delete(board.queue.handle.keys.job(board.ids("active")[-1]))
    claims.take_up(board.queue.handle, "token", [first.id], 20_000)
    assert board.ids("delayed") == []


@each_peer
def test_hundreds_of_schedulers_in_one_claim_advance_once_each(
    board: Board, peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"schedule-{n:03}" for n in range(2 * ADVANCE_SIZE + 5)]
    board.make(*names)
    board.let_wait()
    verbs = ran_verbs(monkeypatch, board)
    claim = board.claim()
    assert verbs == ["work"] + ["advance"] * 3
    assert len(board.ids("delayed")) == len(claim.jobs) == len(names)


@each_peer
def test_jobs_without_a_scheduler_need_no_further_script(
    board: Board, peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    board.queue.add_many(NewJob({"n": n}) for n in range(5))
    verbs = ran_verbs(monkeypatch, board)
    assert len(board.claim().jobs) == 5
    assert verbs == ["work"]
    board.queue.add({"n": 1}, job_id="repeat:x:1")
    assert [job.id for job in board.claim().jobs] == ["repeat:x:1"]
    assert board.ids("delayed") == []


def ran_verbs(monkeypatch: pytest.MonkeyPatch, board: Board) -> list[str]:
    """Records the verbs whose scripts are run from now on."""
    verbs: list[str] = []
    run = QueueHandle.run

    def noting(handle: QueueHandle, verb: str, *args: Any, **keys: Any) -> Any:
        if handle is board.queue.handle:
            verbs.append(verb)
        return run(handle, verb, *args, **keys)

    monkeypatch.setattr(QueueHandle, "run", noting)
    return verbs


@each_peer
def test_an_invalid_pattern_is_logged_and_its_job_runs(
    board: Board, peer: Peer, caplog: pytest.LogCaptureFixture
) -> None:
    board.make("fine", "broken")
    board.let_wait()
    rhythm = "pattern" if peer.dialect == "bullmq" else "cron"
    broken = next(job_id for job_id in board.ids("wait") if of(board, job_id) == "broken")
    opts = {"repeat": {rhythm: "at full moon", "count": 1}, "timestamp": 1, "delay": 0}
    board.client.hset(board.queue.handle.keys.job(broken), "opts", json.dumps(opts))
    assert len(board.claim().jobs) == 2
    assert len(board.ids("delayed")) == 1
    (record,) = [record for record in caplog.records if record.levelname == "ERROR"]
    assert broken in record.getMessage()
    assert "at full moon" in record.getMessage()


def of(board: Board, job_id: str) -> Any:
    """The name of the job scheduler in the payload of a job."""
    return json.loads(board.client.hget(board.queue.handle.keys.job(job_id), "data") or b"{}").get("of")


@each_bullmq
def test_a_scheduler_key_of_a_wrong_type_does_not_affect_others(
    board: Board, peer: Peer, caplog: pytest.LogCaptureFixture
) -> None:
    board.make("fine", "broken")
    board.let_wait()
    key = f"{board.queue.handle.keys['repeats']}:broken"
    board.client.delete(key)
    board.client.set(key, "no hash")
    assert len(board.claim().jobs) == 2
    assert [job_id.split(":")[1] for job_id in board.ids("delayed")] == ["fine"]
    assert "repeat:broken:" in caplog.text
