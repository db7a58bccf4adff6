"""The command `spark-bull`: its operations, tables and JSON."""

from __future__ import annotations

import io
import json
import os
import re
import shlex
import socket
import subprocess
import sys
from argparse import ArgumentTypeError
from collections.abc import Callable
from functools import partial
from pathlib import Path
from unittest.mock import ANY

import pytest
from redis import Redis

import spark_bull
from spark_bull import BullQueue, EmbeddedRedis, FlowJob, NewJob, RunningJob
from spark_bull.core.clock import duration, relative, utc
from spark_bull.core.model.limits import GroupLimits, WorkSettings
from spark_bull.core.queue.dispatch.written import written_ids
from spark_bull.core.queue.manage import bulk
from spark_bull.core.queue.work.claim import work
from spark_bull.ops.cli import main
from spark_bull.ops.cli.arguments import CONNECTION, milliseconds, number, rate, seconds
from spark_bull.ops.cli.command import options_of
from spark_bull.ops.cli.commands import GROUPS, MODULES
from spark_bull.ops.cli.main import parser
from spark_bull.ops.cli.programs import check_input
from spark_bull.ops.cli.tables import as_table
from tests.integration.conftest import Run
from tests.support.commands import running_command
from tests.support.wait import PATIENCE_S, wait_until
from tests.support.worker import OurWorker
from tests.support.writes import register_all

#: Runs the command in a terminal; returns what that shows, without styles, and the exit status.
InShell = Callable[..., tuple[str, int]]


@pytest.fixture
def in_shell(run: Run) -> InShell:
    def run_in_shell(*argv: str, columns: int = 80, typed: str = "") -> tuple[str, int]:
        with running_command(*run.common, *argv, terminal=True, columns=columns, typed=typed) as command:
            code = command.wait()
            return re.sub(r"\x1b\[[0-9;]*m", "", command.text), code

    return run_in_shell


def test_counts_are_a_table_for_people_and_json_for_programs(run: Run, queue: BullQueue) -> None:
    queue.add_many(NewJob({}) for _ in range(3))
    assert run.data("counts", "mail") == [{"queue": "mail", "counts": queue.counts()}]
    for command in (["counts", "*"], ["queues"]):
        assert [row["queue"] for row in run.data(*command, "--min-length", "3", "--max-length", "3")] == ["mail"]
        assert run.data(*command, "--min-length", "4") == []
        assert run.data(*command, "--min-idle", "1h") == []
    lines = run("counts", "mail").splitlines()
    assert [line.split() for line in lines[:2]] == [["queue", "mail"], ["wait", "3"]]
    found = {"queue": "mail", "protocol": "bullmq", "jobs": 3, "paused": False, "intake_open": True}
    unset = dict.fromkeys(["pause_reason", "version", "concurrency", "max", "duration_ms"])
    assert run.data("queues", "m*") == [found | unset]
    assert run.data("queues", "x*") == []
    queue.add({}, name="a", priority=3)
    by_priority = [(row["priority"], row["counts"]) for row in run.data("counts", "mail", "--by", "priority")]
    assert by_priority == [(0, {"wait": 3}), (3, {"prioritized": 1})]
    header, first, *_ = (line.split() for line in run("counts", "mail", "--by", "name").splitlines())
    assert (header, first) == (["queue", "name", "wait", "prioritized"], ["mail", "__default__", "3"])
    assert [row["id"] for row in run.data("page", "mail", "prioritized", "--name", "a", "--descending")] == ["4"]
    assert run.data("page", "mail", "prioritized", "--name", "b") == []
    assert run.data("writes", "mail") == run.data("recover", "mail") == []
    register_all(queue.handle, "w", [])
    register_all(queue.handle, "later", [])
    assert [row["id"] for row in run.data("writes", "mail")] == ["w", "later"]
    for limit, ids in (("1", ["later"]), ("0", ["w", "later"])):
        assert [row["id"] for row in run.data("writes", "mail", "--limit", limit)] == ids


#: Packages that only some commands need, and that take longer to import than a short command may take.
COSTLY = frozenset(
    {"asyncio", "fastapi", "jinja2", "numpy", "pandas", "pyarrow", "pyspark", "shtab", "starlette", "uvicorn"}
)


def test_a_command_imports_only_what_it_needs(run: Run, queue: BullQueue) -> None:
    """redis-py always imports its asyncio modules, and rich.table none of these."""
    queue.add({})
    program = (
        "import sys, redis; theirs = set(sys.modules); from spark_bull.ops.cli import main; "
        f"assert main({[*run.common, 'counts', 'mail']}) == 0; print(*(set(sys.modules) - theirs))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    imported = done.stdout.splitlines()[-1].split()
    others = {f"spark_bull.ops.cli.{module}" for module in MODULES.values()} - {"spark_bull.ops.cli.show"}
    assert not {*others, "spark_bull.ops.cli.watch", "spark_bull.core.queue.bull_queue"} & set(imported)
    assert {name.partition(".")[0] for name in imported} & COSTLY == set()


def test_a_job_is_added_with_its_terms_and_shown(run: Run, queue: BullQueue, monkeypatch: pytest.MonkeyPatch) -> None:
    terms = ("--name", "send", "--attempts", "3", "--opts", '{"lifo": true}')
    added = {"ids": ["1"], "added": 1, "duplicates": 0, "deduplicated": 0}
    assert run.data("add", "mail", '{"to": "ada"}', *terms) == added
    job = run.data("job", "mail", "1")
    assert (job["state"], job["name"], job["data"]) == ("wait", "send", {"to": "ada"})
    assert job["opts"] == {"attempts": 3, "lifo": True}
    assert "send" in run("job", "mail", "1")
    assert run("logs", "mail", "1") == "job 1 of mail has no log\n"
    terms = ("--expire-after", "2m", "--delivery", "at-most-once", "--lock", "10s", "--priority", "low")
    run("add", "mail", "{}", *terms)
    (job,) = queue.page("prioritized")
    assert (job.priority, job.opts["delivery"], job.opts["lockMs"]) == (5, "at-most-once", 10_000)
    assert queue.handle.connection.call("ZSCORE", queue.handle.keys["expiry"], job.id) == (job.timestamp or 0) + 120_000
    run("add", "mail", "{}", "--delay", "2h")
    assert queue.page("delayed")[0].opts["delay"] == 7_200_000
    feed(monkeypatch, "{}\n" * 20)
    run("add", "mail", "-", "--spread", "1h")
    assert len({job.delay for job in queue.page("delayed")}) > 10
    given = ("add", "mail", "{}", "--deduplication")
    assert run.data(*given, "ada")["added"] == 1
    assert run.data(*given, '{"id": "ada", "ttl": 60000}')["deduplicated"] == 1


def test_a_page_fits_the_terminal_and_is_not_cut_in_a_pipe(in_shell: InShell, run: Run, queue: BullQueue) -> None:
    for n in range(5):
        queue.add({"text": "x" * 500, "n": n})
    lines = in_shell("page", "mail", "wait", columns=70)[0].splitlines()
    assert len(lines) == 6, lines
    assert max(map(len, lines)) <= 70
    assert all(line.rstrip().endswith("…") for line in lines[1:])
    header, *lines = run("page", "mail", "wait").splitlines()
    assert header.split() == ["id", "name", "timestamp", "data"], "columns without values are left out"
    assert len(lines) == 5
    assert all(f'"n":{n}' in line.replace(" ", "") and "x" * 500 in line for n, line in enumerate(lines))
    assert [row["id"] for row in run.data("page", "mail", "wait", "1", "2")] == ["2", "3"]
    queue.add({"n": 2}, name="send", priority=3)
    assert "priority" in run("page", "mail", "prioritized").splitlines()[0]


def test_times_are_shown_in_utc_and_control_characters_are_escaped(run: Run, queue: BullQueue) -> None:
    queue.add({}, timestamp=1_700_000_000_000, delay=1, job_id="a", name="\x1b[31mred\x9b0m")
    page, job = run("page", "mail", "delayed"), run("job", "mail", "a")
    assert " 2023-11-14 22:13:20Z " in page
    assert "timestamp  2023-11-14 22:13:20Z (" in job
    assert " d ago)" in job
    assert all("\\x1b[31mred\\x9b0m" in shown for shown in (page, job))


def test_commands_change_the_queue(run: Run, queue: BullQueue) -> None:
    queue.add({}, job_id="a")
    queue.add({}, delay=3_600_000, job_id="b")
    for command in ("pause", "resume"):
        run(command, "mail")
        assert queue.is_paused() == (command == "pause")
    run("promote", "mail", "b")
    assert queue.counts()["wait"] == 2
    run("remove", "mail", "a", "--yes")
    assert queue.job("a") is None
    queue.add({}, job_id="old", timestamp=queue.handle.connection.now_ms() - 2 * 86_400_000)
    queue.add({}, delay=3_600_000)
    removed = {"queue": "mail", "removed": 1}
    assert run.data("clean", "mail", "--state", "wait", "--grace", "1d", "--yes") == removed | {"state": "wait"}
    assert run.data("drain", "mail", "--yes") == run.data("drain", "mail", "--delayed", "--yes") == removed
    assert sum(run.data("counts", "mail")[0]["counts"].values()) == 0, "a queue without jobs exists"
    run("close-intake", "mail")
    assert "queue mail accepts no jobs until" in run("add", "mail", "{}", code=6)
    run("open-intake", "mail")
    queue.add({})
    run("obliterate", "mail", "--yes")
    assert sum(queue.counts().values()) == 0


def test_schedulers_are_created_listed_and_removed(run: Run, queue: BullQueue) -> None:
    made = run.data("schedule", "mail", "daily", "--pattern", "0 9 * * *", "--tz", "UTC", "--data", '{"n": 1}')
    assert (made["id"], made["next"] % 86_400_000) == ("daily", 9 * 3_600_000)
    run("schedule", "mail", "hourly", "--every", "1h", "--offset", "5m", "--name", "report", "--limit", "3")
    run("schedule", "mail", "late", "--every", "1d", "--start", "2038-01-01", "--end", "2038-02-01", "--opts", "{}")
    daily, hourly, late = sorted(run.data("schedulers", "mail"), key=lambda row: row["id"])
    assert (daily["data"], daily["pattern"]) == ({"n": 1}, "0 9 * * *")
    assert (hourly["every"], hourly["offset"], hourly["limit"]) == (3_600_000, 300_000, 3)
    assert late["next"] == late["start_date"] == 2_145_916_800_000
    shown = run("schedulers", "mail")
    assert "1 h" in shown
    assert "2038-02-01 00:00:00Z" in shown
    added = run.data("run-scheduler", "mail", "daily")["id"]
    assert [(job.id, job.data) for job in queue.page("wait")] == [(added, {"n": 1})]
    assert "has no next job" in run("run-scheduler", "mail", "none", code=3)
    run("unschedule", "mail", "daily", "late", "--yes")
    assert [found.id for found in queue.schedulers()] == ["hourly"]
    assert "removed 1 of 2; no such job scheduler in queue mail: daily" in run(
        "unschedule", "mail", "hourly", "daily", "--yes", code=3
    )


def test_limits_of_a_queue_are_set_and_removed(run: Run, queue: BullQueue) -> None:
    queue.add({})
    none = {"concurrency": None, "max": None, "duration_ms": None, "limited_ms": 0, "is_maxed": False}
    limits = {"concurrency": 3, "max": 10, "duration_ms": 1_000, "limited_ms": 0, "is_maxed": False}
    own = {"queue": "mail", "group": None}
    assert run.data("limits", "mail", "--concurrency", "3", "--max", "10", "--duration", "1s") == own | limits
    assert run.data("limits", "mail") == own | limits
    assert run.data("limits", "mail", "--remove") == own | none
    assert 0 < run.data("rate-limit", "mail", "1h")["limited_ms"] <= 3_600_000
    assert run.data("rate-limit", "mail", "--remove") == none
    assert "expected either limits or --remove" in run("limits", "mail", "--max", "1", "--remove", code=2)
    assert "expected either a duration or --remove" in run("rate-limit", "mail", code=2)
    assert "got no `--duration`" in run("limits", "mail", "--max", "1", code=2)


def test_groups_are_limited_paused_resumed_and_listed(run: Run, queue: BullQueue) -> None:
    # Before the queue exists.
    run("pause", "mail", "--group", "late")
    run("resume", "mail", "--group", "late")
    for options in (["--concurrency", "1"], []):
        assert run.data("limits", "mail", "--group", "ada", *options)["concurrency"] == 1
    queue.add_many(NewJob({"tenant": "ada"}) for _ in range(2))
    work(queue.handle, WorkSettings("slot", group=GroupLimits("tenant")), None, 10)
    limits = {"queue": "mail", "group": "ada", "concurrency": 1, "max": 5, "duration_ms": 1_000, "limited_ms": 0}
    given = ("--concurrency", "1", "--max", "5", "--duration", "1s")
    assert run.data("limits", "mail", "--group", "ada", *given) == limits | {"is_maxed": True}
    run("pause", "mail", "--group", "ada")
    unset = {"max": None, "duration_ms": None, "concurrency": None, "is_paused": False}
    row = {"queue": "mail", "group": "ada", "waiting": 1, "active": 1, "rests_until": None}
    limited = {"max": 5, "duration_ms": 1_000, "concurrency": 1, "is_paused": True}
    assert run.data("groups", "mail") == [row | limited]
    assert not queue.is_paused()
    assert run.data("resume", "mail", "--group", "ada") == {"done": "resume", "queue": "mail", "group": "ada"}
    run("limits", "mail", "--group", "ada", "--remove")
    assert run.data("groups", "mail") == [row | unset]


def test_a_queue_that_does_not_exist_is_an_error(run: Run, client: Redis, prefix: str) -> None:
    commands = "counts, page wait, job 1, logs 1, workers, writes, recover, pause, resume, retry 1, retry --all, "
    commands += "promote 1, remove 1, clean, delay 1 --for 1h, close-intake, cancel 1, cancel --all, clear-logs 1, "
    commands += "flow 1, trim-events 10, remove-orphans --yes, limits, limits --remove, rate-limit 30s, "
    commands += "rate-limit --remove, counts --watch 50ms, tail, drain --yes, obliterate --yes"
    for command in commands.split(", "):
        verb, *arguments = command.split()
        said = run(verb, "mial", *arguments, code=3)
        assert said.startswith(f"spark-bull {verb}: no such queue: mial (prefix {prefix}, redis://")
        assert said.count("\n") == 1
        assert list(client.scan_iter(f"{prefix}:*")) == []


def test_counts_of_several_queues_and_globs_are_shown(run: Run, open_queue: Callable[..., BullQueue]) -> None:
    for name, protocol, jobs in (("mail", "bullmq", 2), ("report-a", "bull", 1), ("report-b", "bull-1", 3)):
        open_queue(name, protocol).add_many(NewJob({}) for _ in range(jobs))
    found = run.data("counts", "mail", "report-*", "mail")
    assert [(row["queue"], row["counts"]["wait"]) for row in found] == [("mail", 2), ("report-a", 1), ("report-b", 3)]
    assert [row["counts"].get("prioritized") for row in found] == [0, None, None]
    assert run("counts", "mail", "report-*").splitlines()[0].split()[:2] == ["queue", "wait"]
    assert "no such queue: none matches x*" in run("counts", "mail", "x*", code=3)
    assert "no such queue: mial" in run("counts", "mail", "mial", code=3)
    assert "keeps no events of report-a" in run("tail", "report-a", "--from", "0", code=2)


def test_jobs_are_selected_by_their_ids_or_a_condition(run: Run, queue: BullQueue) -> None:
    ids = queue.add_many([NewJob({"n": n, "to": f"ada@{'b' * (n % 3)}.org"}) for n in range(9)]).ids
    for n, job_id in enumerate(ids):
        queue.fail(job_id, "timeout" if n < 6 else "no such host")
    condition = "failedReason = 'timeout' AND json_extract(data, '$.to') LIKE '%bb%'"
    retried = run.data("retry", "mail", "--all", "--where", condition, "--reset-attempts")
    (record,) = queue.writes()
    counts = {"jobs": 2, "skipped": 0, "missing": 0}
    assert retried == {"done": "retry", "queue": "mail", "writes": [record.id], **counts}
    assert (record.state, record.jobs, record.changed) == ("finished", 2, 2)
    assert sorted(job.id for job in queue.page("wait")) == [ids[2], ids[5]]
    said = run("retry", "mail", "--all", "--where", "faildReason = 1", code=2)
    assert "expected --where to be a condition in SQL of SQLite over the columns id, state, name, data" in said
    assert "no such column: faildReason" in said
    assert "expected --all with --where, got ids" in run("retry", "mail", "1", "--where", "1", code=2)
    assert run.data("retry", "mail", *ids[:2]) == {"done": "retry", "queue": "mail", "jobs": 2}
    said = run("retry", "mail", ids[0], ids[3], "none", code=1)
    assert said.startswith("spark-bull retry: succeeded for 1 of 3 jobs, failed for the others: expected job ")
    assert "expected a job none in queue mail" in said
    assert said.count("\n") == 1
    assert run.data("retry", "mail", "--all")["jobs"] == 4
    assert queue.counts()["wait"] == 9
    assert run.data("remove", "mail", *ids[:2], "--yes")["jobs"] == 2


def test_ctrl_c_aborts_a_change_of_all_jobs_between_two_steps(
    run: Run, queue: BullQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue.add_many(NewJob({}) for _ in range(6))
    monkeypatch.setattr(bulk, "CHUNK_SIZE", 2)

    def interrupted(change: bulk.BulkChange, done: int, total: int) -> None:
        assert (done, total) == (2, 6)
        raise KeyboardInterrupt

    monkeypatch.setattr(bulk.BulkChange, "_note", interrupted)
    said = run("move", "mail", "--all", "--state", "wait", "--to", "late", code=130)
    (record,) = queue.writes()
    assert said == (
        f"spark-bull move: write {record.id} to mail was aborted after 2 of 6 jobs: 2 of them were changed\n"
    )
    assert (record.state, queue.counts()["wait"]) == ("aborted", 4)


def test_jobs_are_changed_by_each_action(run: Run, queue: BullQueue) -> None:
    waiting, other, delayed = queue.add({"n": 1}), queue.add({"n": 2}), queue.add({}, delay=60_000)
    assert run.data("prioritize", "mail", waiting, "--priority", "high")["done"] == "prioritize"
    run("update", "mail", waiting, "--data", '{"n": 3}')
    # All jobs of the state that the action is for.
    assert run.data("delay", "mail", "--all", "--for", "1h")["jobs"] == 1
    assert queue.page("delayed")[0].delay == 3_600_000
    run("promote", "mail", "--all")
    run("complete", "mail", other, "--returnvalue", "7")
    run("fail", "mail", delayed, "--reason", "not needed")
    assert run.data("move", "mail", waiting, "--to", "late")["jobs"] == 1
    assert {state: jobs for state, jobs in queue.counts().items() if jobs} == {"completed": 1, "failed": 1}
    assert run.data("page", "late", "prioritized")[0]["data"] == {"n": 3}
    assert "it is failed" in run("promote", "mail", delayed, code=6)
    assert run.data("remove", "mail", "--all", "--yes")["jobs"] == 1


def test_the_workers_of_a_queue_are_listed(run: Run, queue: BullQueue, redis_url: str) -> None:
    queue.add({})
    assert run("workers", "mail") == "no workers of mail are connected\n"
    name = queue.handle.keys.client_name
    with Redis.from_url(redis_url, client_name=f"{name}:w:ada") as one, Redis.from_url(redis_url) as other:
        one.ping()
        other.ping()
        (worker,) = run.data("workers", "mail")
        assert worker.keys() == {"queue", "name", "address", "age", "idle"}
        assert worker["name"] == "ada"
        header, line = run("workers", "mail").splitlines()
        assert header.split() == ["name", "address", "age", "idle"]
        assert line.split()[:2] == ["ada", worker["address"]]


def test_durations_have_units_and_numbers_may_have_underscores() -> None:
    given = {"0": 0, "500ms": 500, "30s": 30_000, "5m": 300_000, "2h": 7_200_000, "1.5d": 129_600_000}
    assert {text: milliseconds(text) for text in given} == given
    assert [seconds(text) for text in ("0.5s", "2m", "250ms")] == [0.5, 120, 0.25]
    for text in ("soon", "", "30", "-1s", "1 week", "1w", "٣s", "1e3s", "9" * 400 + "d"):
        with pytest.raises(ArgumentTypeError, match="500ms, 5s, 3m, 2h or 1d, got: "):
            milliseconds(text)
    assert [number(text) for text in ("20", "10_000", "-1")] == [20, 10_000, -1]
    assert [rate(text) for text in ("20", "10_000", "0.5")] == [20, 10_000, 0.5]
    for text in ("", "ten", "1.5", "1e3", "²", "1__0", " 1"):
        with pytest.raises(ArgumentTypeError, match="expected a number such as 20 or 10_000, got: "):
            number(text)


def feed(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """Makes a text the standard input, which is then not a terminal."""
    monkeypatch.setattr(sys, "stdin", io.StringIO(text))


def test_each_line_of_standard_input_becomes_a_job(run: Run, queue: BullQueue, monkeypatch: pytest.MonkeyPatch) -> None:
    feed(monkeypatch, '{"n": 1}\n{"n": \n')
    assert 'expected line 2 to be JSON, got: \'{"n": ' in run("add", "mail", "-", code=2)
    feed(monkeypatch, "1\n2\n")
    assert "--job-id" in run("add", "mail", "-", "--job-id", "a", code=2)
    assert sum(queue.counts().values()) == 0
    feed(monkeypatch, '{"n": 1}\n\n[2]\r\n"three"')
    added = run.data("add", "mail", "-", "--name", "send")
    assert added == {"ids": ["1", "2", "3"], "added": 3, "duplicates": 0, "deduplicated": 0}
    assert [(job.name, job.data) for job in queue.page("wait")] == [("send", one) for one in ({"n": 1}, [2], "three")]
    feed(monkeypatch, "4\n")
    assert run("add", "mail", "-").split() == ["added", "1", "duplicates", "0"]
    feed(monkeypatch, "")
    assert run.data("add", "mail", "-")["ids"] == []


def test_an_active_job_is_cancelled_with_a_reason(run: Run, queue: BullQueue) -> None:
    job_id = queue.add({})
    assert f"expected job {job_id} of queue mail to be active, it is wait" in run("cancel", "mail", job_id, code=6)

    def processor(job: RunningJob) -> None:
        wait_until(lambda: job.cancelled, "the cancellation")
        raise RuntimeError("rolled back")

    with OurWorker(queue.handle, processor):
        wait_until(lambda: queue.counts()["active"], "the job to start")
        cancelled = run.data("cancel", "mail", job_id, "--reason", "too late")
        assert cancelled == {"done": "cancel", "queue": "mail", "jobs": 1}
        wait_until(lambda: queue.counts()["failed"], "the job to fail")
    assert [job.failed_reason for job in queue.page("failed")] == ["cancelled: too late"]
    assert run.data("cancel", "mail", "--all") == {"done": "cancel", "queue": "mail", "jobs": 0}
    assert "expected either the id of a job or --all" in run("cancel", "mail", code=2)


def test_a_flow_is_shown_with_all_its_levels(run: Run, queue: BullQueue) -> None:
    page = FlowJob({}, "print", job_id="page", queue="pages", children=[FlowJob({}, job_id="word", queue="words")])
    queue.add_flow(FlowJob({}, "bind", job_id="book", children=[page]))
    rows = run.data("flow", "mail", "book")
    assert [tuple(row[name] for name in ("depth", "queue", "id", "parent_id", "dependency")) for row in rows] == [
        (0, "mail", "book", None, None),
        (1, "pages", "page", "book", "unprocessed"),
        (2, "words", "word", "page", "unprocessed"),
    ]
    assert len(run.data("flow", "mail", "book", "--max-depth", "2")) == 2
    assert len(run.data("flow", "mail", "book", "--max-jobs", "1")) == 1
    assert "expected job 7 in queue mail, found none" in run("flow", "mail", "7", code=3)


def test_logs_events_and_orphaned_jobs_are_removed(run: Run, queue: BullQueue, client: Redis) -> None:
    job_id, lost = queue.add({}), queue.add({})
    for row in ("a", "b", "c"):
        queue.log(job_id, row)
    run.data("clear-logs", "mail", job_id, "--keep", "2", "--yes")
    assert queue.logs(job_id) == ["b", "c"]
    assert "expected a job 7" in run("clear-logs", "mail", "7", "--yes", code=3)
    assert "expected job 7 in queue mail, found none" in run("logs", "mail", "7", code=3)
    events = client.xlen(queue.handle.keys["events"])
    assert run.data("trim-events", "mail", "0", "--yes") == {"queue": "mail", "removed": events}
    client.lrem(queue.handle.keys["wait"], 1, lost)
    assert run.data("remove-orphans", "mail", "--yes") == {"queue": "mail", "removed": 1}
    assert (queue.job(lost), queue.counts()["wait"]) == (None, 1)


def test_a_sweep_requires_yes_and_a_queue_that_exists(
    run: Run, queue: BullQueue, open_queue: Callable[..., BullQueue], tmp_path: Path
) -> None:
    folder = ["--offload-to", str(tmp_path), "--older-than", "0s"]
    offloading = open_queue("mail", offload_to=str(tmp_path), offload_above=0)
    offloading.remove(offloading.add({}))
    queue.remove(offloading.add({}))
    assert "use --yes to confirm" in run("sweep", "mail", *folder, code=2)
    assert "found no queue mial" in run("sweep", "mial", *folder, "--yes", code=2)
    assert run.data("sweep", "mail", *folder, "--yes")["deleted"] == 1


def test_without_a_terminal_whatever_deletes_requires_yes(
    run: Run, queue: BullQueue, client: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue.add_many([NewJob({}), NewJob({})])

    def dumped() -> dict[bytes, bytes]:
        return {key: client.dump(key) for key in client.scan_iter(f"{queue.handle.keys.prefix}:*")}

    before = dumped()
    for command, what in [
        ("clean mail", "completed jobs of queue mail"),
        ("clean mail --state wait --grace 36h", "wait jobs of queue mail that are older than 1 d 12 h"),
        ("remove mail 1", "1 job of queue mail"),
        ("remove mail 1 2", "2 jobs of queue mail"),
        ("remove mail --all --state wait", "2 jobs of queue mail"),
        ("clear-logs mail 1 --keep 5", "the log of job 1 of queue mail but its last 5 rows"),
        ("trim-events mail 10", "all events of queue mail but the last 10"),
        ("unschedule mail a b", "the job schedulers a, b of queue mail"),
        ("remove-orphans mail", "jobs of queue mail that are in no state"),
        ("drain mail --delayed", "all waiting and delayed jobs of queue mail"),
        ("obliterate mail", "queue mail with all its jobs"),
    ]:
        feed(monkeypatch, "yes\n")
        said = run(*command.split(), code=2)
        needed = "expected a terminal to ask for confirmation, got none; use --yes to confirm"
        assert f"this deletes {what}: {needed}" in said
        assert dumped() == before


@pytest.mark.parametrize(("command", "answer"), [("drain", "yes"), ("obliterate", "mail")])
def test_in_a_terminal_deletion_asks_for_confirmation(
    in_shell: InShell, queue: BullQueue, command: str, answer: str
) -> None:
    queue.add({})
    shown, code = in_shell(command, "mail", typed="no\n")
    assert code == 1
    assert f". Type {answer} to continue: " in shown
    assert "nothing was changed" in shown
    assert queue.counts()["wait"] == 1
    assert in_shell(command, "mail", typed=f"{answer}\n")[1] == 0
    assert queue.counts()["wait"] == 0


ADD, SCHEDULE = ["add", "mail"], ["schedule", "mail", "s"]


def test_a_wrong_value_is_an_error_of_one_line(run: Run, queue: BullQueue) -> None:
    queue.add({"n": 1})
    for arguments, message in (
        *(([*ADD, data], "expected data to be JSON, got: ") for data in ("NaN", "[1, NaN]", "[" * 100_000, "", "'{}'")),
        *(([*ADD, "{}", "--opts", opts], "opts") for opts in ("nonsense", "[1]", "0", '{"keepLogs": NaN}')),
        ([*ADD, "{}", "--attempts", "9" * 25], "expected `--attempts` to be an integer >= 0"),
        ([*ADD, "{}", "--opts", f'{{"timestamp": {"9" * 25}}}'], "expected `timestamp` to be ms"),
        ([*ADD, "{}", "--opts", '{"delay": "a"}'], "spark-bull add: expected `delay` to be ms"),
        ([*ADD, "{}", "--lock", "1ms"], "expected `--lock` to be an integer >= 300 (ms)"),
        ([*ADD, "{}", "--priority", "urgent"], "one of critical, high, medium, normal, low"),
        (SCHEDULE, "expected one of `--every` (ms) and `--pattern` (cron), got neither"),
        ([*SCHEDULE, "--pattern", "soon"], "`--pattern`: expected a cron pattern, got: 'soon'"),
        ([*SCHEDULE, "--every", "1h", "--end", "soon"], "expected `--end` to be an ISO 8601 time or ms since 1970"),
        ([*SCHEDULE, "--every", "1d", "--start", "²"], "expected `--start` to be an ISO 8601 time"),
        ([*SCHEDULE, "--every", "1d", "--data", "NaN"], "expected --data to be JSON"),
        ([*SCHEDULE, "--every", "1d", "--opts", "1"], "expected `--opts` to be a JSON object"),
        (["update", "mail", "1", "--data", "NaN"], "expected --data to be JSON"),
        (["complete", "mail", "1", "--returnvalue", "NaN"], "expected --returnvalue to be JSON"),
        (["retry", "mail"], "expected either ids of jobs or --all, got both or neither"),
        (["retry", "mail", "1", "--all"], "expected either ids of jobs or --all, got both or neither"),
        (["counts", "mail", "--watch", "50ms", "--by", "name"], "expected one of --watch and --by, got both"),
        (["tail", "mail", "--from", "soon"], "expected `--from` to be"),
    ):
        shown = run(*arguments, code=2)
        assert (shown.count("\n"), message in shown) == (1, True), shown
    assert {state: jobs for state, jobs in queue.counts().items() if jobs} == {"wait": 1}
    assert queue.job("1").data == {"n": 1}
    assert queue.schedulers() == []


def test_an_error_is_one_line_without_secrets(run: Run, own_redis: Callable[..., EmbeddedRedis]) -> None:
    server = own_redis({"requirepass": "open-sesame"})
    said = run("counts", "mail", "--url", f"redis://:wrong-one@127.0.0.1:{server.port}", code=5)
    assert said.startswith("spark-bull counts: ")
    assert said.count("\n") == 1
    assert "refused the user or password" in said
    assert "wrong-one" not in said


def test_a_server_that_is_gone_and_a_reader_that_has_ended_have_statuses(
    run: Run, own_redis: Callable[..., EmbeddedRedis], monkeypatch: pytest.MonkeyPatch
) -> None:
    server = own_redis()
    server.kill()
    monkeypatch.setattr("spark_bull.ops.cli.command.options_of", partial(options_of, retryMs=0))
    assert "expected Redis at" in run("counts", "mail", "--url", server.url, code=4)
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "spark_bull.ops.cli", *run.common, "queues"]
    assert subprocess.run(command, stdout=writer, timeout=PATIENCE_S, check=False).returncode == 141
    os.close(writer)


def test_help_lists_commands_in_groups_and_explains_one(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    overview = run()
    assert overview == run("help") == run("--help")
    assert max(map(len, overview.splitlines())) <= 80
    assert re.findall(r"^\S+$", overview, re.MULTILINE) == list(GROUPS)
    assert re.findall(r"^  ([a-z-]+) ", overview, re.MULTILINE) == [*MODULES, "connection", "status"]
    connection = run("help", "connection")
    assert all(name in connection for one in CONNECTION for name in one.names)
    assert run("help", "status").splitlines()[1].split() == ["0", "done"]
    assert "(did you mean `move`?)" in run("help", "muve", code=2)
    for given, start in (
        (["help", "counts"], "usage: spark-bull counts "),
        (["counts", "--help"], "usage: spark-bull counts "),
        (["--version"], f"spark-bull {spark_bull.__version__}\n"),
    ):
        with pytest.raises(SystemExit) as exited:
            main(given)
        assert exited.value.code == 0
        shown = capsys.readouterr().out
        assert shown.startswith(start)
        assert "--url" not in shown


def test_an_empty_list_says_what_is_empty(run: Run, queue: BullQueue) -> None:
    queue.add({})
    for given, said in (
        (["page", "mail", "failed"], "no failed jobs in mail"),
        (["page", "mail", "wait", "10", "--name", "a"], "no wait jobs named a in mail from position 10 on"),
        (["queues", "x*"], "no queues match x*"),
        (["counts", "mail", "--min-length", "10_000"], "no queues match mail with these filters"),
        (["schedulers", "mail"], "no job schedulers in mail"),
        (["groups", "mail"], "no groups of jobs in mail"),
        (["writes", "mail"], "no writes to mail in the last 30 days"),
        (["recover", "mail"], "no interrupted writes to mail"),
    ):
        assert run(*given) == f"{said}\n"
        assert run.data(*given) == []


def test_the_status_of_wait_tells_what_has_become_of_the_jobs(run: Run, queue: BullQueue) -> None:
    good, bad = queue.add({"$behaviour": "return:1"}), queue.add({"$behaviour": "fail"})
    for what in (["--idle"], ["--job", good]):
        assert "within 0.001 s" in run("wait", "mail", *what, "--timeout", "1ms", code=124)
    with OurWorker(queue.handle):
        assert json.loads(run("--json", "wait", "mail", "--job", good))["returnvalue"] == 1
        assert "scripted failure 1" in run("wait", "mail", "--job", bad, code=1)
        assert json.loads(run("--json", "wait", "mail", "--idle"))["failed"] == 1
    assert "expected one of --write, --job and --idle" in run("wait", "mail", "--idle", "--job", good, code=2)
    assert "no such write to mail: none" in run("wait", "mail", "--write", "none", code=3)
    register_all(queue.handle, "w", [[NewJob({})]], keepsIds=1)
    queue.recover()
    queue.remove(*written_ids(queue.handle, "w"))
    assert "unknown" in run("wait", "mail", "--write", "w", code=9)


def test_programs_have_help_without_pyspark() -> None:
    code = (
        "import sys; sys.modules['pyspark'] = None; from contextlib import suppress; "
        "from spark_bull.ops.cli.main import parser\n"
        "for command in ('dispatch', 'work', 'collect', 'report'):\n"
        "    with suppress(SystemExit): parser().parse_args([command, '--help'])\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=PATIENCE_S)
    found = re.findall(r"^usage: spark-bull (\w+) ", ran.stdout, re.MULTILINE)
    assert found == ["dispatch", "work", "collect", "report"]
    piped = f"{sys.executable} -m spark_bull.ops.cli --help | true"
    assert subprocess.run(piped, shell=True, capture_output=True, timeout=PATIENCE_S, check=False).returncode == 0


WORKER = ["work", "--processor", "json:loads"]
WORK = [*WORKER, "--option"]


def test_a_wrong_argument_of_a_program_is_an_error_before_spark_starts(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pyspark.sql.SparkSession.builder", None)
    for given, said in [
        (["dispatch", "--input", "a.json", "--option", "chunkSizes=3"], "unknown option `chunkSizes` (did you mean"),
        (["collect", "--output", "lake", "--once", "--option", "startingOffsets=latest"], "requires the option `read"),
        (["report", "--option", "views=counts"], "unknown option `views` (did you mean `view`?)"),
        ([*WORK, "lock_ms=soon"], "expected `lock_ms` to be an integer"),
        ([*WORK, "retry_ms=abc"], "expected `retry_ms` to be an integer"),
        ([*WORK, "timeout_ms=abc"], "expected `timeout_ms` to be an integer"),
        ([*WORK, "retryMs=1"], "unknown option `retryMs` (did you mean `retry_ms`?)"),
        ([*WORK, "env=1"], "unknown option `env`"),
        ([*WORK, "promoter=true", "--target-wait", "1s"], "`--target-wait` has no effect without a range of `--slots`"),
        ([*WORK, "redis.host=x"], "`redis.host` cannot be passed to redis"),
        ([*WORK, "min_chunk=50", "--option", "chunk_size=10"], "expected `min_chunk` to be at most `chunk_size` (10)"),
        ([*WORK, "chunk_wait_ms=50"], "`chunk_wait_ms` has no effect without `min_chunk`"),
        (
            [*WORK, "max_started=2", "--option", "protocol=bull"],
            "expected no `max_started`: bull does not count starts; leave it out",
        ),
        ([*WORKER, "--weight", "mial=3"], "did you mean `mail`?"),
        ([*WORK, "min_chunk=5", "--local"], "`min_chunk` has no effect without Spark"),
        ([*WORKER, "--local", "--master", "local[2]"], "`--master` has no effect with --local"),
        ([*WORKER, "--processes"], "`--processes` has no effect without --local"),
        ([*WORKER, "--guard", "failed < 3 over 1m"], "expected > or >= after `failed` in"),
        ([*WORK, "promoter=false", "--guard", "failed > 3 over 1m"], "`guards` has no effect with promoter=False"),
        (["dispatch", "--input", "no/such*.csv", "--format", "csv"], "expected --input to be a file or a folder, got"),
        (["replay", "--input", "file:///no/such/table"], "expected --input to be a file or a folder, got: "),
        (["report"], "no such queue: mail (prefix "),
        (["collect", "--output", "lake", "--url", "redis://:wrong@127.0.0.1:1", "--option", "retryMs=0"], "got none: "),
    ]:
        assert said in run(*given, "--queue", "mail", code=ANY)


def test_a_worker_says_which_queues_are_missing_by_its_own_options(
    own_redis: Callable[..., EmbeddedRedis], capsys: pytest.CaptureFixture[str]
) -> None:
    server = own_redis({"user": "app on >open-sesame ~* &* +@all -scan"})
    url = server.url.replace("redis://", "redis://app@")
    with BullQueue("mail", url=url, password="open-sesame", protocol="bullmq") as queue:
        queue.add({})
    given = [*WORK, "password=open-sesame", "--url", url, "--local", "--until-idle", "1ms", "--queue"]
    assert main([*given, "mail,mial,post"]) == 0
    said = [line.partition(" (")[0] for line in capsys.readouterr().err.splitlines() if "no such queue" in line]
    assert said == ["spark-bull work: no such queue: mial", "spark-bull work: no such queue: post"]
    assert main([*given, "m*"]) == 0, "the user must not SCAN"
    assert "no such queue" not in capsys.readouterr().err
    assert main([*given, "x*", "--no-scan"]) == 0
    assert "no such queue: x*" in capsys.readouterr().err
    report = ["report", "--option", "password=open-sesame", "--url", url, "--queue", "x*"]
    assert main([*report, "--no-scan"]) == 3


def test_a_program_needs_java(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    for name in ("PYSPARK_GATEWAY_PORT", "SPARK_REMOTE"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "jobs.json").touch()
    given = ("dispatch", "--input", str(tmp_path / "jobs.json"), "--format", "json", "--queue", "mail")
    assert "expected Java 17 or newer, which Spark needs, found none" in run(*given, code=1)


def test_only_files_of_this_machine_are_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "b").touch()
    for given in ["a", "s3a://b/c", "orders.june", "file:b"]:
        monkeypatch.setenv("HADOOP_CONF_DIR", "/etc/hadoop")
        check_input(given, "parquet", {})
        monkeypatch.delenv("HADOOP_CONF_DIR")
        check_input(given, "parquet", {"spark.hadoop.fs.defaultFS": "hdfs://name"})
        check_input(given, "iceberg", {})


WORK_URGENT = "work --processor my_jobs:send --queue urgent"


def test_a_wrong_option_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    for given, said in (
        *((bad, "error: ") for bad in ("counts", "page mail waiting", "--nonsense")),
        ("clean q --grace soon", "argument --grace"),
        ("conts mail", "spark-bull: unknown command `conts` (did you mean `counts`?); `spark-bull help` lists all"),
        ("page mail wait ten", "argument start: expected a number such as 20 or 10_000, got: 'ten'"),
        ("serve --port 9000", "argument --port: expected --listen HOST:PORT instead, got: --port 9000"),
        ("counts mail --jsn", "spark-bull counts: error: unrecognized arguments: --jsn (did you mean `--json`?)"),
        (f"{WORK_URGENT} --retry urgent=many", "argument --retry: expected a number such as 20 or 10_000, got: 'many'"),
        *(
            (f"{WORK_URGENT} --weight {text}", "argument --weight: expected ")
            for text in ("urgent", "=3", "urgent=", "urgent=-1")
        ),
        ("counts mail --watch 0s", "argument --watch: expected a duration of 1ms or more, got: '0s'"),
        ("metrics --window 0s", "argument --window: expected a duration of 1ms or more, got: '0s'"),
        ("metrics --sample -1", "expected a number of 0 or more, got: '-1'"),
        ("metrics --label zone", "expected name=value, such as environment=production, got: 'zone'"),
        *((f"metrics --label {text}", "expected name=value") for text in ("2=x", "__name__=x")),
        ("metrics --label queue=x", "expected another name than name, percentile, queue, state, got: 'queue="),
        *(
            (f"{command} --listen {text}", "expected host:port")
            for command in ("serve", "metrics")
            for text in ("8080", "x:y", "a:b:1", "127.0.0.1:70000", "''")
        ),
    ):
        with pytest.raises(SystemExit) as exited:
            main(shlex.split(given))
        assert exited.value.code == 2
        assert said in " ".join(capsys.readouterr().err.split())


def test_work_takes_several_queues_and_their_weights() -> None:
    for given, queues, weights in [
        (["--queue", "mail"], ["mail"], []),
        (["--queue", "urgent, mail"], ["urgent", "mail"], []),
        (["--queue", "urgent", "--queue", "mail,slow"], ["urgent", "mail", "slow"], []),
        (["--queue", "a=b,c", "--weight", "a=b=3", "--weight", "c=1"], ["a=b", "c"], [("a=b", 3), ("c", 1)]),
    ]:
        args = parser().parse_args(["work", "--processor", "my_jobs:send", *given])
        assert (args.queue, args.weight) == (queues, weights)


def test_no_module_of_the_command_shadows_the_standard_library() -> None:
    """spark-submit puts the folder of the started file at the front of sys.path."""
    modules = {path.stem for path in (Path(spark_bull.__file__).parent / "ops" / "cli").glob("*.py")}
    assert "show" in modules
    assert (modules - {"__init__", "__main__"}) & sys.stdlib_module_names == set()


def test_numbers_times_and_durations_are_shown_for_people() -> None:
    table = as_table([{"state": "wait", "jobs": 1234567, "data": "x"}, {"state": "f", "jobs": 1, "data": "y"}])
    assert table.splitlines()[1:] == ["wait   1,234,567  x", "f              1  y"]
    shown = {0: "0 s", 250: "250 ms", 90_000: "1 min 30 s", 3_600_000: "1 h", 93_784_000: "1 d 2 h"}
    assert {ms: duration(ms) for ms in shown} == shown
    assert utc(10**18) == str(10**18)
    assert (relative(5_000, 5_500), relative(0, 90_000), relative(90_000, 0)) == ("now", "1 min ago", "in 1 min")


def test_a_server_needs_a_free_address_and_its_packages(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        where = f"127.0.0.1:{taken.getsockname()[1]}"
        assert "expected an address of this machine with a free port" in run("serve", "--listen", where, code=2)
        said = f"expected a free address to listen on, got: {where} (Address already in use)"
        assert said in run("metrics", "--listen", where, code=2)
    # Both places of the module are restored afterwards.
    monkeypatch.delattr(spark_bull.ops, "web", raising=False)
    for name in [name for name in sys.modules if name.startswith("spark_bull.ops.web")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "fastapi", None)
    assert "pip install 'spark-bull[web]'" in run("serve", "--listen", "127.0.0.1:0", code=2)
