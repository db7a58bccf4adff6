"""The views of the page, and a queue that fills all of them."""

from __future__ import annotations

import json
from typing import Final

from spark_bull.core.model.read_jobs import FlowJob
from tests.support.wait import wait_until
from tests.web.browser import Browser
from tests.web.conftest import Site

#: Their paths, by the names of their pictures.
VIEWS: Final = {
    "overview": "/",
    "queue": "/queues/reports?state=failed",
    "job": "/queues/reports/jobs/report-5",
    "parent": "/queues/reports/jobs/book",
    "failed": "/jobs?state=failed",
    "stats": "/queues/reports/stats",
    "add": "/queues/reports/actions/add?like=report-5",
    "delete": "/queues/reports/actions/obliterate",
    "schedulers": "/queues/reports/schedulers",
    "all-schedulers": "/schedulers",
    "workers": "/queues/reports/workers",
    "writes": "/queues/reports/writes",
    "api": "/api",
}


def open_view(browser: Browser, path: str) -> None:
    """Opens a view, and waits until its charts are drawn."""
    browser.open(path)
    wait_until(lambda: browser.count(".chart") == browser.count(".chart canvas"), "the charts")


def fill(site: Site) -> None:
    """A queue with jobs of all kinds, once."""
    queue = site.queue("reports")
    if queue.job("book"):
        return
    for n in range(1, 9):
        queue.add({"month": n, "pages": [1, 2, 3]}, name="monthly", job_id=f"report-{n}", attempts=3)
    for n in (1, 2, 3):
        queue.complete(f"report-{n}", {"file": f"report-{n}.pdf"})
        now = queue.handle.connection.now_ms()
        times = {"timestamp": now - 90_000 * n, "processedOn": now - 4_200 * n, "finishedOn": now}
        site.client.hset(queue.handle.keys.job(f"report-{n}"), mapping=times)
    for n in (4, 5):
        queue.fail(f"report-{n}", "Error: connect ETIMEDOUT 10.0.0.7:5432")
    keys = queue.handle.keys
    site.client.rpush(keys.logs("report-5"), *(f"page {n} is ready" for n in range(5)))
    site.client.hset(
        keys.job("report-5"), "stacktrace", json.dumps(["Error: connect ETIMEDOUT\n    at Socket (net.js:1)"])
    )
    queue.add_flow(FlowJob({}, "bind", job_id="book", children=[FlowJob({"page": n}, "page") for n in range(3)]))
    queue.upsert_scheduler("nightly", pattern="0 3 * * *", tz="Europe/Berlin")
    queue.upsert_scheduler("often", every=60_000)
    report = {"run": 0, "slot": 0, "started": 1_700_000_000_000, "state": "busy", "clients": []}
    counted = {"claimed": 9, "completed": 7, "failed": 1, "retried": 0, "returned": 0, "lost": 0}
    site.client.hset(keys.slots("w"), "0:1", json.dumps(report | counted))
