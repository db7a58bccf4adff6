"""The REST API: each operation on queues of every dialect, over HTTP."""

from __future__ import annotations

import base64
import html
import json
import re
from collections.abc import Callable, Iterator
from threading import Event
from typing import Any
from urllib.parse import quote

import httpx
import msgpack
import pytest
from redis import Redis

from spark_bull import BullQueue, ConnectionLost, EmbeddedRedis, FlowJob, NewJob
from spark_bull.core.model.limits import GroupLimits, WorkSettings
from spark_bull.core.options.parse import parse_options
from spark_bull.core.options.table import ReadOptions
from spark_bull.core.queue.collect.result_ledger import ResultLedger
from spark_bull.core.queue.dispatch.roll_forward import roll_forward
from spark_bull.core.queue.handle.report import add_log
from spark_bull.core.queue.manage.bulk import BulkChange
from spark_bull.core.queue.work.claim import work
from spark_bull.ops.prometheus.collect import Export, collect
from spark_bull.ops.prometheus.families import READABLE
from spark_bull.ops.web import queue_access, settings
from spark_bull.ops.web.api.events import MAX_STREAMS
from spark_bull.ops.web.bulk_changes import MOST_CHANGES
from spark_bull.run.slot.slot_report import Failures, SlotReport, SlotStats
from tests.support.wait import wait_until
from tests.support.web import READING, WRITE_TOKEN, WRITING, Web, serving
from tests.support.work_bench import WorkBench, each_dialect, failed_for
from tests.support.worker import OurWorker
from tests.support.writes import register_all


@each_dialect
def test_queues_are_listed_with_their_numbers_of_jobs(web: Web, queue: BullQueue) -> None:
    queue.add_many([NewJob({"n": n}) for n in range(3)])
    queue.pause()
    (found,) = web.get("/queues")["queues"]
    assert (found["queue"], found["protocol"], found["paused"]) == ("mail", queue.protocol, True)
    assert found["counts"] == queue.counts()
    details = web.get("/queues/mail")
    assert details["features"]["retryableStates"] == list(queue.handle.dialect.retryable_states)
    assert (details["ids"], details["counts"]) == (3, queue.counts())

    def names(filters: str) -> list[str]:
        return [one["queue"] for one in web.get(f"/queues?{filters}")["queues"]]

    assert names("minLength=3&maxLength=3") == ["mail"]
    assert names("minLength=4") == names("minIdleMs=3600000") == names("minFinishedPerSecond=1") == []
    assert names("minAddedPerSecond=0.04") == (["mail"] if queue.protocol == "bullmq" else [])
    assert "minLength" in web.get("/queues?minLength=4&maxLength=3", code=400)["detail"]


def test_only_selected_queues_exist(open_queue: Callable[..., BullQueue], place: dict[str, str]) -> None:
    prefix = place["prefix"]
    for name in ("mail", "mail-late", "secret"):
        open_queue(name, "bullmq").add(1)
    for selected in (("mail*",), ("mail", "mail-late")):
        with serving(**place, queues=selected) as web:
            assert [found["queue"] for found in web.get("/queues")["queues"]] == ["mail", "mail-late"]
            assert {job["queue"] for job in web.get("/jobs")["jobs"]} == {"mail", "mail-late"}
            for path in ("", "/jobs", "/jobs/1", "/events"):
                assert "secret" in web.get(f"/queues/secret{path}", code=404)["detail"]
            web.post("/queues/secret/jobs?create=true", {"data": 1}, code=404)
            web.post("/queues/mail/jobs/1/move", {"to": "secret"}, code=404)
            web.post("/jobs", {"queue": "secret", "data": 1}, code=404)
            for parent_queue in ("secret", f"{prefix}:secret", "other:mail"):
                parent = {"queue": parent_queue, "id": "1"}
                for job in ({"data": 1, "parent": parent}, {"data": 1, "opts": {"parent": parent}}):
                    assert parent_queue in web.post("/queues/mail/jobs", job, code=404)["detail"]
            own = {"queue": f"{prefix}:mail", "id": "1"}
            assert web.post("/queues/mail/jobs", {"data": 1, "parent": own}, code=201)["added"] == 1


def test_a_job_is_added_shown_changed_and_removed(web: Web, queue: BullQueue) -> None:
    queue.add({"first": 1})
    added = web.post("/queues/mail/jobs", {"data": {"to": "ada"}, "delay": 3_600_000}, code=201)
    assert added == {"ids": ["2"], "added": 1, "duplicates": 0, "deduplicated": 0}
    job = web.get("/queues/mail/jobs/2")
    assert (job["state"], job["data"], job["delay"]) == ("delayed", {"to": "ada"}, 3_600_000)
    assert job["runAt"] == job["timestamp"] + 3_600_000
    web.ask("PATCH", "/queues/mail/jobs/2", code=204, json={"data": {"to": "grace"}, "delay": 10}, headers=WRITING)
    (changed,) = queue.page("delayed")
    assert (changed.data, changed.delay) == ({"to": "grace"}, 10)
    web.ask("PATCH", "/queues/mail/jobs/2", code=204, json={"data": None}, headers=WRITING)
    assert web.get("/queues/mail/jobs/2")["data"] is None
    web.ask("DELETE", "/queues/mail/jobs/2", code=204, headers=WRITING)
    assert queue.job("2") is None


def test_jobs_are_added_together_or_to_the_queue_that_they_name(web: Web, queue: BullQueue) -> None:
    assert "on this server: mail" in web.post("/queues/mail/jobs", {"data": 1}, code=404)["detail"]
    web.post("/queues/mail/jobs?create=true", {"data": {"n": 0}}, code=201)
    assert [found["queue"] for found in web.get("/queues")["queues"]] == ["mail"]
    added = web.post("/queues/mail/jobs", [{"data": {"n": n}} for n in (1, 2, 3)], code=201)
    assert added["ids"] == ["2", "3", "4"]
    assert web.post("/jobs", {"queue": "mail", "data": {"n": 4}}, code=201)["ids"] == ["5"]
    assert [job.data["n"] for job in queue.page("wait")] == [0, 1, 2, 3, 4]
    refused = web.post("/queues/mail/jobs", [{"data": 1}, {"data": 2, "delay": -1}], code=400)
    assert refused["field"] == "1.delay"
    assert queue.counts()["wait"] == 5


def test_all_properties_of_a_job_are_taken_over(web: Web, queue: BullQueue) -> None:
    queue.add(0)
    retries = {"attempts": 2, "backoff": {"type": "exponential", "delay": 50}}
    opts = {**retries, "removeOnFail": {"age": 60}, "lockMs": 10_000}
    new = {"data": [1, "x"], "name": "send", "jobId": "mine", "priority": "high", "timestamp": 1_700_000_000_000}
    new |= {**opts, "removeOnComplete": 5, "expireAfterMs": 600_000, "delivery": "at-least-once"}
    web.post("/queues/mail/jobs", new, code=201)
    assert web.post("/queues/mail/jobs", new, code=201)["duplicates"] == 1
    job = web.get("/queues/mail/jobs/mine")
    assert (job["name"], job["priority"], job["timestamp"]) == ("send", 2, 1_700_000_000_000)
    assert job["opts"] | opts == job["opts"]
    web.ask("PATCH", "/queues/mail/jobs/mine", code=204, json={"priority": 7}, headers=WRITING)
    assert web.get("/queues/mail/jobs/mine")["priority"] == 7


def test_jobs_are_retried_and_promoted_one_by_one_and_together(web: Web, queue: BullQueue, bench: WorkBench) -> None:
    ids = bench.add(5)
    claim = bench.claim()
    refused = web.ask("DELETE", f"/queues/mail/jobs/{ids[0]}", code=409, headers=WRITING).json()
    assert "locked by a worker" in refused["detail"]
    bench.work(failed_for(claim, "boom"))
    job = web.get(f"/queues/mail/jobs/{ids[0]}")
    assert (job["state"], job["failedReason"], job["attemptsMade"]) == ("failed", "boom", 1)
    web.post(f"/queues/mail/jobs/{ids[0]}/retry")
    again = web.post(f"/queues/mail/jobs/{ids[0]}/retry", code=409)
    assert "it is wait" in again["detail"]
    assert changed(web, {"action": "retry"}) == 4
    ids = queue.add_many([NewJob(n, delay=3_600_000) for n in range(4)]).ids
    web.post(f"/queues/mail/jobs/{ids[0]}/promote")
    web.post(f"/queues/mail/jobs/{ids[0]}/promote", code=409)
    assert changed(web, {"action": "promote"}) == 3
    assert bench.counts() == {"wait": 9}


def changed(web: Web, wanted: dict[str, Any]) -> int:
    """How many jobs a change of all has changed, once it has ended; 0 if too many others go on."""
    answer = web.client.post("/api/queues/mail/changes", json=wanted, headers=WRITING)
    if answer.status_code == 429:
        return 0
    assert answer.status_code == 202, answer.text
    path = answer.headers["location"]
    assert path == f"/api/queues/mail/writes/{answer.json()['id']}"
    wait_until(lambda: web.get(path.removeprefix("/api"))["state"] == "finished", "the change to end")
    return int(web.get(path.removeprefix("/api"))["changed"])


@each_dialect
def test_all_jobs_that_meet_conditions_are_changed(
    web: Web, queue: BullQueue, open_queue: Callable[..., BullQueue]
) -> None:
    late = open_queue("late", queue.protocol)
    late.add({})
    for n in range(12):
        queue.add({"n": n, "odd": n % 2}, job_id=f"job-{n}")
        queue.fail(f"job-{n}", "a Timeout" if n < 8 else "bad")
    assert len(web.get("/queues/mail/jobs?reason=TIMEOUT")["jobs"]) == 8
    assert changed(web, {"action": "retry", "reason": "timeout", "text": '"odd":1'}) == 4
    assert sorted(job.data["n"] for job in queue.page("wait")) == [1, 3, 5, 7]
    assert changed(web, {"action": "remove", "reason": "bad"}) == 4
    assert changed(web, {"action": "move", "moveTo": "late", "text": '"n":0,'}) == 1
    assert late.counts()["wait"] == 2
    assert changed(web, {"action": "move", "moveTo": "late", "from": 2**50}) == 0
    assert queue.counts()["failed"] == 3


def test_a_change_of_all_is_aborted_and_a_write_of_jobs_is_not(
    web: Web, queue: BullQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue.add_many(NewJob({}, delay=3_600_000) for _ in range(3))
    going = Event()
    monkeypatch.setattr(BulkChange, "_find", lambda change, found: going.wait() and change._stage([]))
    started = [web.post("/queues/mail/changes", {"action": "promote"}, code=202)["id"] for _ in range(MOST_CHANGES)]
    assert "at once" in web.post("/queues/mail/changes", {"action": "promote"}, code=429)["detail"]
    for write_id in started:
        path = f"/queues/mail/writes/{write_id}"
        assert web.get(path)["state"] == "prepared"
        web.ask("DELETE", path, code=403, headers=READING)
        assert web.ask("DELETE", path, code=200, headers=WRITING).json()["state"] == "aborted"
    going.set()
    register_all(queue.handle, "jobs", [[NewJob({})]])
    assert "adds jobs" in web.ask("DELETE", "/queues/mail/writes/jobs", code=409, headers=WRITING).json()["detail"]
    web.get("/queues/mail/writes/none", code=404)
    monkeypatch.undo()
    wait_until(lambda: changed(web, {"action": "promote"}) == 3, "a change to be possible again")
    assert {web.get(f"/queues/mail/writes/{one}")["changed"] for one in started} == {0}


def test_a_question_about_all_jobs_has_the_name_by_which_they_were_found(web: Web, queue: BullQueue) -> None:
    queue.fail(queue.add({}, name="letter"), "bad")
    web.client.post("/login", data={"token": WRITE_TOKEN})
    page = web.client.get("/queues/mail", params={"state": "failed", "name": " letter "}).text
    (question,) = re.findall(r'href="([^"]*retry-all[^"]*)"', page)
    assert "Retry 1 failed jobs?" in web.client.get(html.unescape(question)).text


def test_wrong_changes_of_all_begin_nothing(web: Web, queue: BullQueue) -> None:
    queue.add({})
    for wanted, field in (
        ({"action": "promote", "state": "failed"}, "state"),
        ({"action": "retry", "state": "wait"}, "state"),
        ({"action": "move"}, "moveTo"),
        ({"action": "retry", "moveTo": "late"}, "moveTo"),
        ({"action": "promote", "resetAttempts": True}, "resetAttempts"),
        ({"action": "pause"}, "action"),
        ({"action": "retry", "resaon": "x"}, "resaon"),
    ):
        assert web.post("/queues/mail/changes", wanted, code=400)["field"] == field
    assert "another queue" in web.post("/queues/mail/changes", {"action": "move", "moveTo": "mail"}, code=400)["detail"]
    web.post("/queues/mail/changes", {"action": "move", "moveTo": "none"}, code=404)
    web.ask("POST", "/queues/mail/changes", code=403, json={"action": "retry"}, headers=READING)
    assert queue.writes() == []


def test_groups_are_listed_limited_paused_and_resumed(web: Web, queue: BullQueue) -> None:
    queue.add_many(NewJob({"tenant": name}) for name in ("ada", "a/b", "c", "c"))
    work(queue.handle, WorkSettings("slot", group=GroupLimits("tenant", concurrency=1)), None, 10)
    web.ask("PUT", "/queues/mail/groups/a%2Fb/limits", code=204, json={"concurrency": 2}, headers=WRITING)
    web.post("/queues/mail/groups/ada/pause")
    first = web.get("/queues/mail/groups?limit=2")
    rest = web.get(f"/queues/mail/groups?limit=2&after={quote(first['next'], safe='')}")
    assert rest["next"] is None
    shown = ("group", "active", "waiting", "isPaused", "concurrency")
    found = {tuple(one[name] for name in shown) for one in [*first["groups"], *rest["groups"]]}
    assert found == {("ada", 1, 0, True, None), ("a/b", 1, 0, False, 2), ("c", 1, 1, False, None)}
    web.post("/queues/mail/groups/ada/resume")
    web.ask("DELETE", "/queues/mail/groups/a%2Fb/limits", code=204, headers=WRITING)
    found = {(one["concurrency"], one["isPaused"]) for one in web.get("/queues/mail/groups")["groups"]}
    assert found == {(None, False)}


def test_a_queue_is_paused_resumed_closed_opened_cleaned_and_drained(web: Web, queue: BullQueue) -> None:
    queue.add_many([NewJob(n) for n in range(10)])
    queue.add(1, delay=3_600_000)
    web.post("/queues/mail/pause")
    assert queue.is_paused()
    web.post("/queues/mail/resume")
    assert not queue.is_paused()
    web.post("/queues/mail/close-intake")
    assert "accepts no jobs" in web.post("/queues/mail/jobs", {"data": 1}, code=409)["detail"]
    web.post("/queues/mail/open-intake")
    cleaned = web.post("/queues/mail/clean", {"state": "wait", "limit": 4}, code=200)
    assert (cleaned["jobs"], cleaned["more"]) == (4, True)
    assert web.post("/queues/mail/drain", code=200)["jobs"] == 6
    assert web.post("/queues/mail/drain", {"delayed": True}, code=200)["jobs"] == 1


def test_a_change_of_a_job_that_has_changed_is_refused(web: Web, queue: BullQueue, bench: WorkBench) -> None:
    (job_id,) = bench.add(delay=3_600_000)
    path = f"/queues/mail/jobs/{job_id}"
    etag = web.ask("GET", path, code=200, headers=READING).headers["etag"]
    queue.update_data(job_id, {"other": True})
    for method, end, body in (("PATCH", "", {"data": 1}), ("POST", "/promote", None), ("DELETE", "", None)):
        refused = web.ask(method, path + end, code=409, json=body, headers={**WRITING, "If-Match": etag}).json()
        assert "has changed and is delayed" in refused["detail"]
    etag = web.ask("GET", path, code=200, headers=READING).headers["etag"]
    web.ask("POST", f"{path}/promote", code=204, headers={**WRITING, "If-Match": etag})


def test_a_job_is_failed_and_moved(web: Web, queue: BullQueue, open_queue: Callable[..., BullQueue]) -> None:
    for n in (1, 2):
        queue.add({"n": n})
    web.post("/queues/mail/jobs/1/fail", {"reason": "wrong address"})
    assert web.get("/queues/mail/jobs/1")["failedReason"] == "wrong address"
    web.post("/queues/mail/jobs/2/move", {"to": "late"}, code=404)
    other = open_queue("late", "bullmq")
    other.add(0)
    web.post("/queues/mail/jobs/2/move", {"to": "late"})
    assert [job.data for job in other.page("wait")] == [0, {"n": 2}]


def test_ids_may_contain_any_character(web: Web, queue: BullQueue) -> None:
    for job_id in ("a/b", "ü ?#%2F", "..", "x/logs"):
        queue.add({"id": job_id}, job_id=job_id)
        part = httpx.URL("http://x", params={"": job_id}).query.decode()[1:].replace("+", "%20")
        assert web.get(f"/queues/mail/jobs/{part.replace('.', '%2E')}")["data"] == {"id": job_id}


def test_a_cursor_goes_on_with_the_parameters_of_its_page_only_and_if_it_was_not_changed(
    web: Web, queue: BullQueue
) -> None:
    ids = queue.add_many([NewJob({"n": n}) for n in range(7)]).ids
    page = web.get("/queues/mail/jobs", limit=3, state="wait")
    assert [job["id"] for job in page["jobs"]] == ids[:3]
    rest = web.get("/queues/mail/jobs", limit=9, state="wait", cursor=page["next"])
    assert ([job["id"] for job in rest["jobs"]], rest["next"]) == (ids[3:], None)
    for path, others in (
        ("/queues/mail/jobs", {"state": "wait", "order": "desc"}),
        ("/queues/mail/jobs", {"state": "wait", "text": "x"}),
        ("/queues/mail/jobs", {}),
        ("/jobs", {"state": "wait"}),
    ):
        assert web.get(path, code=400, cursor=page["next"], **others)["field"] == "cursor"
    queue.add_many([NewJob(n, delay=3_600_000) for n in range(3)])
    cursor = web.get("/queues/mail/jobs", limit=1, state="delayed")["next"]
    digest, name, place = msgpack.unpackb(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
    assert float(place[1]) > 0
    for score in ("nan", "1_0", " 1", "٣", "(1", "1e", 1):
        changed = msgpack.packb([digest, name, [place[0], score, *place[2:]]])
        given = base64.urlsafe_b64encode(changed).rstrip(b"=").decode()
        assert web.get("/queues/mail/jobs", code=400, limit=1, state="delayed", cursor=given)["field"] == "cursor"


def test_a_search_begins_with_the_job_of_this_id(web: Web, queue: BullQueue) -> None:
    queue.add_many([NewJob({"text": f"about j{n}"}, job_id=f"j{n}") for n in range(12)])
    found, page = [], {"next": ""}
    while page["next"] is not None:
        cursor = {"cursor": page["next"]} if page["next"] else {}
        page = web.get("/queues/mail/search", text="j1", limit=1, **cursor)
        assert len(page["jobs"]) <= 1
        found += [job["id"] for job in page["jobs"]]
    assert found[0] == "j1"
    assert set(found) == {"j1", "j10", "j11"}


def test_a_flow_is_shown_without_jobs_of_queues_that_are_not(web: Web, queue: BullQueue, place: dict[str, str]) -> None:
    page = FlowJob({"page": 1}, queue="pages", job_id="page", children=[FlowJob({}, queue="pages", job_id="word")])
    flow = queue.add_flow(FlowJob({"book": 1}, children=[page]))
    found = web.get(f"/queues/mail/jobs/{flow.id}/flow")["jobs"]
    shown = [(job["id"], job["depth"], job["childCount"]) for job in found]
    assert shown == [(flow.id, 0, 1), ("page", 1, 1), ("word", 2, 0)]
    assert (found[0]["job"]["data"], found[1]["parent"]) == ({"book": 1}, {"queue": "mail", "id": flow.id})
    assert len(web.get(f"/queues/mail/jobs/{flow.id}/flow", maxDepth=2)["jobs"]) == 2
    web.get(f"/queues/mail/jobs/{flow.id}/flow", code=400, maxJobs=0)
    family = web.get(f"/queues/mail/jobs/{flow.id}/family")
    assert (family["parent"], family["counts"]["unprocessed"]) == (None, 1)
    assert [child["id"] for child in family["children"]] == ["page"]
    assert web.get("/queues/pages/jobs/page/family")["parent"] == {"queue": "mail", "id": flow.id}
    with serving(**place, queues=("mail",)) as other:
        found = other.get(f"/queues/mail/jobs/{flow.id}/flow")["jobs"]
        assert [job["job"] is None for job in found] == [False, True, True]


def test_workers_slots_ledgers_writes_statistics_and_metrics_are_shown(web: Web, queue: BullQueue) -> None:
    register_all(queue.handle, "w", [[NewJob({"n": n}) for n in range(3)]])
    assert roll_forward(queue.handle, "w").state == "finished"
    SlotReport(
        queue.handle, "spark-1", run=0, slot=2, stats=SlotStats(claimed=5, completed=4), failures=Failures(), damaged={}
    ).publish("busy", [])
    assert ResultLedger(queue.handle, "lake", owner="query").open("earliest", create=True).state == "ok"
    page = web.get("/queues/mail/writes")
    (write,) = page["writes"]
    assert (write["id"], write["state"], write["jobs"], write["added"]) == ("w", "finished", 3, 3)
    register_all(queue.handle, "later", [])
    first = web.get("/queues/mail/writes", limit=1)
    assert (first["writes"][0]["id"], first["next"], page["next"]) == ("later", 1, None)
    assert web.get("/queues/mail/writes", limit=1, start=first["next"]) == page
    (slot,) = web.get("/queues/mail/workers")["slots"]
    assert (slot["worker"], slot["slot"], slot["state"], slot["completed"]) == ("spark-1", 2, "busy", 4)
    (ledger,) = web.get("/queues/mail/ledgers")["ledgers"]
    assert (ledger["reader"], ledger["owner"], ledger["entries"]) == ("lake", "query", 0)
    assert ledger["expiresInMs"] > 0
    found = web.get("/queues/mail/stats")["stats"]
    assert (found[0]["queue"], found[0]["name"], found[0]["jobs"]["wait"]) == ("mail", None, 3)
    assert web.get("/stats")["stats"][0]["jobs"] == found[0]["jobs"]
    assert web.get("/queues/mail/metrics", state="failed")["count"] == 0
    with OurWorker(queue.handle):
        workers = wait_until(lambda: web.get("/queues/mail/workers")["workers"], "the worker to connect")
        assert workers[0]["idleMs"] >= 0


def test_a_schedule_is_created_changed_and_removed(web: Web, queue: BullQueue) -> None:
    queue.add(1)
    queue.upsert_scheduler("daily", every=86_400_000, name="report")
    (found,) = web.get("/queues/mail/schedulers")["schedulers"]
    assert (found["every"], found["name"]) == (86_400_000, "report")
    assert queue.remove_scheduler("daily")
    path = "/queues/mail/schedulers/a%2Fb"
    for pattern in ("0 9 * * *", "0 10 * * *"):
        body = {"pattern": pattern, "tz": "Europe/Berlin", "name": "report", "data": {"n": 1}}
        due = web.ask("PUT", path, code=200, json=body, headers=WRITING).json()["next"]
        (found,) = queue.schedulers()
        assert (found.id, found.pattern, found.next) == ("a/b", pattern, due)
    refused = web.ask("PUT", path, code=400, json={"pattern": "x", "tz": "Europe/Berlin"}, headers=WRITING).json()
    assert "pattern" in refused["detail"]
    web.ask("PUT", "/queues/mail/schedulers/often", code=200, json={"every": "PT15M"}, headers=WRITING)
    assert [one.every for one in queue.schedulers() if one.id == "often"] == [900_000]
    refused = web.ask("PUT", path, code=400, json={"every": "P1M"}, headers=WRITING).json()
    assert "use `pattern`" in refused["detail"]
    assert web.post("/queues/mail/schedulers/often/run", code=201)["added"] == 1
    web.post("/queues/mail/schedulers/none/run", code=404)
    web.ask("DELETE", "/queues/mail/schedulers/often", code=204, headers=WRITING)
    web.ask("DELETE", path, code=204, headers=WRITING)
    web.ask("DELETE", path, code=404, headers=WRITING)
    assert queue.schedulers() == []


def test_logs_are_read_in_portions_and_logs_events_and_orphaned_jobs_are_removed(
    web: Web, queue: BullQueue, client: Redis
) -> None:
    job_id, lost = queue.add(1), queue.add(2)
    for n in range(7):
        add_log(queue.handle, job_id, f"row {n}")
    rows = web.get(f"/queues/mail/jobs/{job_id}/logs", start=2, limit=3)
    assert rows == {"start": 2, "rows": ["row 2", "row 3", "row 4"], "total": 7}
    web.ask("DELETE", f"/queues/mail/jobs/{job_id}/logs?keep=1", code=204, headers=WRITING)
    assert queue.logs(job_id) == ["row 6"]
    events = client.xlen(queue.handle.keys["events"])
    trimmed = web.ask("POST", "/queues/mail/trim-events", code=200, json={"maxEvents": 0}, headers=WRITING)
    assert trimmed.json() == {"events": events}
    client.lrem(queue.handle.keys["wait"], 1, lost)
    removed = web.ask("POST", "/queues/mail/remove-orphans", code=200, headers=WRITING).json()
    assert (removed["jobs"], queue.job(lost)) == (1, None)
    assert web.ask("POST", "/queues/mail/cancel", code=202, headers=WRITING).json()["jobs"] == 0
    web.ask("PATCH", f"/queues/mail/jobs/{job_id}", code=204, json={"delay": 60_000}, headers=WRITING)
    assert queue.counts()["delayed"] == 1


def test_limits_of_a_queue_are_set_and_removed_and_it_is_deleted_when_its_name_is_repeated(
    web: Web, bench: WorkBench
) -> None:
    bench.add(2)
    web.ask("PUT", "/queues/mail/limits", code=204, json={"concurrency": 5}, headers=WRITING)
    web.ask("PUT", "/queues/mail/limits", code=204, json={"max": 9, "durationMs": 1_000}, headers=WRITING)
    limits = web.get("/queues/mail")["limits"]
    assert (limits["concurrency"], limits["max"], limits["durationMs"]) == (5, 9, 1_000)
    web.ask("PUT", "/queues/mail/limits", code=400, json={"max": 9}, headers=WRITING)
    web.ask("DELETE", "/queues/mail/limits", code=204, headers=WRITING)
    assert web.get("/queues/mail")["limits"]["concurrency"] is None
    bench.claim(1)
    for query, code in (("", 400), ("?confirm=male", 400), ("?confirm=mail", 409), ("?confirm=mail&force=true", 204)):
        web.ask("DELETE", f"/queues/mail{query}", code=code, headers=WRITING)
    web.get("/queues/mail", code=404)
    assert web.get("/queues") == {"queues": [], "next": None, "partial": False}


def test_numbers_of_any_size_are_never_an_internal_error_and_show_what_can_be_read(
    web: Web, queue: BullQueue, client: Redis
) -> None:
    huge, path = "9" * 5_000, "/queues/mail/schedulers/daily"
    job_id = queue.add({})
    for wrong in (
        {"pattern": f"{huge} * * * *"},
        {"pattern": "0 3 * * *", "tz": f"UTC+{huge}"},
        {"every": f"PT{huge}S"},
    ):
        web.ask("PUT", path, code=400, json=wrong, headers=WRITING)
    web.ask("PUT", path, code=200, json={"pattern": "0 3 * * *", "tz": "UTC+25"}, headers=WRITING)
    (found,) = queue.schedulers()
    assert found.next % 86_400_000 == 2 * 3_600_000  # 3 o'clock, 25 hours ahead
    keys = queue.handle.keys
    limits = {"paused": f"spark-bull guard until {huge}: x", "max": huge, "concurrency": "1e999"}
    client.hset(keys["meta"], mapping=limits)
    of_job = {"delay": huge, "priority": "1e999", "processedOn": "1.5e12", "atm": "2 times"}
    client.hset(keys.job(job_id), mapping=of_job)
    for state in ("delayed", "prioritized", "completed", "repeats"):
        client.zadd(keys[state], {job_id: "inf"})
    for part in ("", "/jobs/1", "/jobs?state=delayed", "/jobs?state=prioritized", "/schedulers", "/stats", "/metrics"):
        web.get(f"/queues/mail{part}")
    job = queue.job(job_id)
    assert (web.get("/queues")["queues"][0]["paused"], job.attempts_made, job.delay) == (True, 2, 0)
    client.delete(keys["repeats"])
    client.zadd(keys["repeats"], {"odd": 5})
    client.hset(keys.scheduler("odd"), mapping={"ic": 1, "every": huge})
    (found,) = web.get("/queues/mail/schedulers")["schedulers"]
    assert (found["id"], found["every"], found["pattern"]) == ("odd", None, None)
    page = web.client.get("/queues/mail/schedulers", headers=READING)
    assert (page.status_code, "every" in page.text) == (200, False)


@pytest.mark.parametrize("queue", ["bull-1"], indirect=True)
def test_what_a_dialect_lacks_is_a_conflict_that_says_so(web: Web, queue: BullQueue) -> None:
    queue.add(1)
    for path in ("/schedulers", "/metrics", "/jobs/1/family", "/events?start=0", "/jobs?state=prioritized"):
        assert "expected" in web.get(f"/queues/mail{path}", code=409)["detail"]
    refused = web.ask("PATCH", "/queues/mail/jobs/1", code=409, json={"priority": 1}, headers=WRITING).json()
    assert "jobs of bull-1 have no priority" in refused["detail"]
    assert "BullQueue.events()" in web.get("/queues/mail/events?start=0", code=409)["detail"]


def test_wrong_input_names_the_field(web: Web, queue: BullQueue) -> None:
    queue.add(1)

    for body, field in (
        ({"dota": 1}, "data"),
        ({"data": 1, "prio": 1}, "prio"),
        ({"data": 1, "delay": "5"}, "delay"),
        ({"data": 1, "delay": 1, "runAt": 1}, "delay"),
        ({"data": 1, "opts": {"delay": "soon"}}, "delay"),
        ([], "body"),
    ):
        assert web.post("/queues/mail/jobs", body, code=400)["field"] == field
    assert web.post("/queues/mail/clean", {"state": "done"}, code=400)["field"] == "state"
    broken = web.ask("POST", "/queues/mail/jobs", code=400, content=b"{", headers={**WRITING, **JSON}).json()
    assert (broken["field"], "expected the body to be JSON" in broken["detail"]) == ("body", True)
    not_finite = web.ask("POST", "/queues/mail/jobs", code=400, content=b'{"data": NaN}', headers={**WRITING, **JSON})
    assert not_finite.json()["field"] == "data"
    for name, value in (("limit", 0), ("state", "done"), ("from", "x"), ("order", "up"), ("cursor", "x")):
        assert web.get("/queues/mail/jobs", code=400, **{name: value})["field"].startswith(name)
    misspelled = web.get("/queues/mail/jobs", code=400, sate="failed")
    assert (misspelled["field"], "did you mean `state`" in misspelled["detail"]) == ("sate", True)
    assert queue.counts()["wait"] == 1


JSON = {"Content-Type": "application/json"}


def test_unknown_paths_and_wrong_methods_say_what_is_allowed(web: Web, queue: BullQueue) -> None:
    queue.add(1)
    web.get("/queues/mail/jobs/77", code=404)
    web.get("/queues/none/jobs", code=404)
    web.get("/nothing", code=404)
    for method, path, allowed in (
        ("PUT", "/queues/mail/jobs", {"GET", "HEAD", "POST"}),
        ("POST", "/queues/mail/jobs/1", {"GET", "HEAD", "DELETE", "PATCH"}),
        ("DELETE", "/queues/mail/pause", {"POST"}),
    ):
        answer = web.ask(method, path, code=405, headers=WRITING)
        assert set(answer.headers["allow"].split(", ")) == allowed
    web.ask("POST", "/session/x", code=404, headers=WRITING)


def test_a_damaged_job_is_shown_as_it_is(web: Web, queue: BullQueue, client: Redis) -> None:
    job_id = queue.add(1)
    as_it_is = ("{oops", "NaN", '{"n": 1e999}', "[" * 5_000)
    for text, shown in (*((one, one) for one in as_it_is), ('"\\ud800"', "\ud800")):
        client.hset(queue.handle.keys.job(job_id), "data", text)
        answer = web.ask("GET", f"/queues/mail/jobs/{job_id}", code=200, headers=READING)
        assert json.loads(answer.text)["data"] == shown
        assert len(web.get("/queues/mail/jobs")["jobs"]) == 1


def test_without_redis_the_server_lives_and_answers_503_until_it_is_back_and_while_it_hangs(
    own_redis: Callable[..., EmbeddedRedis], monkeypatch: pytest.MonkeyPatch
) -> None:
    redis = own_redis()
    BullQueue("mail", url=redis.url, protocol="bullmq").add(1)
    with serving(url=redis.url) as web:

        def status(path: str) -> int:
            """What a probe of another host gets."""
            return web.client.get(path, headers={"Host": "10.0.0.7:8080"}).status_code

        assert (status("/healthz"), status("/readyz"), status("/api/queues")) == (200, 200, 421)
        assert web.get("/queues/mail")["counts"]["wait"] == 1
        redis.kill()
        assert (status("/healthz"), status("/readyz")) == (200, 503)
        answer = web.ask("GET", "/queues/mail", code=503, headers=READING)
        assert int(answer.headers["retry-after"]) > 0
        redis.restart()
        wait_until(lambda: web.client.get("/api/queues", headers=READING).status_code == 200, "Redis to be back")
        BullQueue("mail", url=redis.url, protocol="bullmq").add(1)
        assert web.get("/queues/mail")["counts"]["wait"] == 1
        with Redis.from_url(redis.url) as client:
            client.execute_command("CLIENT", "PAUSE", 3_600_000)
        monkeypatch.setattr(settings, "CALL_TIMEOUT_MS", 50)
        web.ask("GET", "/queues/mail", code=503, headers=READING)


def test_a_cluster_that_is_down_but_answers_ping_is_not_ready(own_redis: Callable[..., EmbeddedRedis]) -> None:
    redis = own_redis({"cluster-enabled": "yes"})
    options = parse_options({"url": redis.url, "retryMs": "0", "queue": "*"}, ReadOptions)
    export = Export(options, ("{mail}", "{late}"), 10, 60_000, 5)
    with serving(url=redis.url) as web, Redis.from_url(redis.url) as client:
        client.execute_command("CLUSTER", "ADDSLOTS", *range(16384))
        wait_until(lambda: b"cluster_state:ok" in client.execute_command("CLUSTER", "INFO"), "the cluster to be up")
        for name in ("{mail}", "{late}"):
            BullQueue(name, url=redis.url, protocol="bullmq").add(1)
        web.server.app.state.queues.forget_names()
        assert web.client.get("/readyz").status_code == 200
        assert {sample.value for sample in collect(export) if sample.family is READABLE} == {1}
        client.execute_command("CLUSTER", "DELSLOTS", 0)
        wait_until(lambda: b"cluster_state:fail" in client.execute_command("CLUSTER", "INFO"), "the cluster to fail")
        assert client.ping()
        assert web.client.get("/healthz").status_code == 200
        assert web.client.get("/readyz").status_code == 503
        with pytest.raises(ConnectionLost, match="does not serve the slot"):
            collect(export)


@each_dialect
def test_events_are_streamed_until_the_client_leaves_in_a_limited_number_of_streams(web: Web, queue: BullQueue) -> None:
    queue.add(1)
    slots = web.server.app.state.streams
    slots.open = MAX_STREAMS
    assert "retry-after" in web.ask("GET", "/queues/mail/events", code=429, headers=READING).headers
    slots.open = 0
    for path in ("/api/queues/mail/events", "/api/events"):
        with web.client.stream("GET", path, headers=READING) as answer:
            assert answer.headers["content-type"].startswith("text/event-stream")
            lines = answer.iter_lines()
            assert next(lines).startswith("retry:")
            queue.pause()
            queue.resume()
            assert [next_event(lines)["event"] for _ in range(2)] == ["paused", "resumed"]
        wait_until(lambda: slots.open == 0, "the stream to end")


def test_a_stream_goes_on_after_the_last_event_that_a_browser_has(web: Web, queue: BullQueue) -> None:
    queue.add(1)
    queue.pause()
    queue.resume()
    with web.client.stream("GET", "/api/queues/mail/events?start=0", headers=READING) as answer:
        lines = answer.iter_lines()
        found = [next_event(lines)]
        while found[-1]["event"] != "paused":
            found.append(next_event(lines))
    headers = {**READING, "Last-Event-ID": found[-1]["id"]}
    with web.client.stream("GET", "/api/queues/mail/events", headers=headers) as answer:
        assert next_event(answer.iter_lines())["event"] == "resumed"


def next_event(lines: Iterator[str]) -> dict[str, Any]:
    """The next event of a stream; other lines are passed over."""
    return next(json.loads(line.partition(" ")[2]) for line in lines if line.startswith("data: "))


def test_a_server_that_stops_ends_its_streams(
    queue: BullQueue, place: dict[str, str], own_log: pytest.LogCaptureFixture
) -> None:
    queue.add(1)
    with serving(**place) as web, web.client.stream("GET", "/api/queues/mail/events", headers=READING) as answer:
        web.server.should_exit = True
        assert [line for line in answer.iter_lines() if line.startswith("data")] == []
    assert own_log.text == ""


def test_scans_of_a_large_database_take_a_small_part_of_the_time(
    web: Web, queue: BullQueue, open_queue: Callable[..., BullQueue], monkeypatch: pytest.MonkeyPatch
) -> None:
    known, times = web.server.app.state.queues, iter(range(0, 10_000, 3))
    # A scan takes 3 s by this clock.
    monkeypatch.setattr(queue_access, "monotonic_s", lambda: next(times))
    queue.add(1)
    assert known.names() == ["mail"]
    open_queue("late", "bullmq").add(1)
    found = [known.names() for _ in range(25)]
    assert found == [["mail"]] * 20 + [["late", "mail"]] * 5
    known.forget_names()
