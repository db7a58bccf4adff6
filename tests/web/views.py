"""The views of the page, and a queue that fills all of them.

python -m tests.web.views docs/images takes the pictures of docs/howto/serve.md.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Final

from redis import Redis

from spark_bull.core.embedded import EmbeddedRedis
from spark_bull.core.model.jobs import NewJob
from spark_bull.core.model.queues import MINUTE_MS
from spark_bull.core.model.read_jobs import FlowJob
from spark_bull.core.queue.bull_queue import BullQueue
from tests.support.wait import wait_until
from tests.support.web import WRITE_TOKEN, serving
from tests.web.browser import DESKTOP, PHONE, Browser, chromium
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
    """A queue with jobs of all kinds, and counters of two hours, once."""
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
    queue.add_many(NewJob({"customer": 7_000 + n, "pages": n % 9 + 1}, "invoice") for n in range(180))
    queue.add_many(NewJob({"customer": 9_000 + n}, "reminder", delay=600_000 * (n + 1)) for n in range(40))
    minute = queue.handle.connection.now_ms() // MINUTE_MS * MINUTE_MS
    for state, most in (("completed", 120), ("failed", 6)):
        points = [most + n * 7 % 11 for n in range(120)]
        site.client.rpush(keys[f"metrics_{state}_data"], *points)
        counted = {"count": sum(points), "prevTS": minute, "prevCount": sum(points[1:])}
        site.client.hset(keys[f"metrics_{state}"], mapping=counted)


#: For how long the queue changes before the pictures, s.
_BUSY_S: Final = 60
_PICTURES: Final = {"page-queue": ("queue", DESKTOP, "light"), "page-job": ("job", PHONE, "dark")}


def take_pictures(folder: Path) -> None:
    with EmbeddedRedis() as redis, serving(url=redis.url) as web, chromium() as driver:
        site = Site(web, "bull", redis.url, Redis.from_url(redis.url))
        fill(site)
        browser = Browser(driver, web.url)
        browser.start()
        browser.sign_in(WRITE_TOKEN)
        browser.open(VIEWS["queue"])
        _be_busy(site.queue("reports"))
        folder.mkdir(parents=True, exist_ok=True)
        for name, (view, size, theme) in _PICTURES.items():
            browser.show_on(size, theme)
            browser.open(VIEWS[view])
            browser.wait_for("Live")
            driver.save_screenshot(str(folder / f"{name}.png"))


def _be_busy(queue: BullQueue) -> None:
    for round_ in range(_BUSY_S // 4):
        queue.add_many(NewJob({"customer": n, "pages": 2}, "invoice") for n in range(20 + 15 * (round_ % 5)))
        for job in queue.page("wait", 0, 30 + 10 * (round_ % 4), name="invoice"):
            queue.complete(job.id, {"file": f"{job.id}.pdf"})
        time.sleep(4)


if __name__ == "__main__":
    take_pictures(Path(sys.argv[1]))
