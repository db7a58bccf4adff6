"""Takes the pictures of docs/howto/serve.md: python -m tests.support.page_pictures docs/images"""

from __future__ import annotations

import json
import math
import sys
import time
from pathlib import Path

from redis import Redis

from spark_bull.embedded.redis import EmbeddedRedis
from spark_bull.model.jobs import MINUTE_MS, NewJob
from spark_bull.queue.bull_queue import BullQueue
from tests.support.browser import DESKTOP, PHONE, Browser, chromium
from tests.support.web import WRITE_TOKEN, serving

#: For how long the queue changes before the pictures, s.
_BUSY_S = 60


def main(folder: Path) -> None:
    with EmbeddedRedis() as redis, serving(url=redis.url) as web, chromium() as driver:
        queue = BullQueue("reports", url=redis.url)
        fill(queue, Redis.from_url(redis.url))
        browser = Browser(driver, web.url)
        browser.start()
        browser.sign_in(WRITE_TOKEN)
        browser.open("/queues/reports?state=failed")
        be_busy(queue)
        pictures = {
            "page-queue": ("/queues/reports?state=failed", DESKTOP, "light"),
            "page-job": ("/queues/reports/jobs/report-march", PHONE, "dark"),
        }
        folder.mkdir(parents=True, exist_ok=True)
        for name, (path, size, theme) in pictures.items():
            browser.show_on(size, theme)
            browser.open(path)
            browser.wait_for("Live")
            driver.save_screenshot(str(folder / f"{name}.png"))


def fill(queue: BullQueue, client: Redis) -> None:
    """Adds jobs, some of which have failed, and counters of two hours."""
    queue.add_many(NewJob({"customer": 7_000 + n, "pages": n % 9 + 1}, "invoice") for n in range(180))
    queue.add_many(NewJob({"customer": 9_000 + n}, "reminder", delay=600_000 * (n + 1)) for n in range(40))
    for month in ("january", "february", "march"):
        job_id = queue.add({"month": month, "format": "pdf"}, name="monthly", job_id=f"report-{month}", attempts=3)
        queue.fail(job_id, "Error: connect ETIMEDOUT 10.0.0.7:5432")
        now = queue.handle.connection.now_ms()
        trace = "Error: connect ETIMEDOUT 10.0.0.7:5432\n    at render (/app/report.js:42:11)"
        fields = {"timestamp": now - 200_000, "processedOn": now - 61_000, "atm": 3, "stacktrace": json.dumps([trace])}
        client.hset(queue.handle.keys.job(job_id), mapping=fields)
        client.rpush(queue.handle.keys.logs(job_id), *(f"page {n} of 12 is ready" for n in range(1, 8)))
    minute = queue.handle.connection.now_ms() // MINUTE_MS * MINUTE_MS
    for state, most in (("completed", 120), ("failed", 6)):
        points = [round(most * (1 + 0.5 * math.sin(n / 17)) + n * 7 % 11) for n in range(120)]
        client.rpush(queue.handle.keys[f"metrics_{state}_data"], *points)
        counted = {"count": sum(points), "prevTS": minute, "prevCount": sum(points) - points[0]}
        client.hset(queue.handle.keys[f"metrics_{state}"], mapping=counted)


def be_busy(queue: BullQueue) -> None:
    """Adds and completes jobs."""
    end = time.monotonic() + _BUSY_S
    round_ = 0
    while time.monotonic() < end:
        round_ += 1
        queue.add_many(NewJob({"customer": n, "pages": 2}, "invoice") for n in range(20 + 15 * (round_ % 5)))
        for job in queue.page("wait", 0, 30 + 10 * (round_ % 4)):
            queue.complete(job.id, {"file": f"{job.id}.pdf"})
        time.sleep(4)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
