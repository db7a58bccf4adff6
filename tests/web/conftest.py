"""A server with some queues, and a browser."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from redis import Redis
from selenium import webdriver

from spark_bull.core.queue.bull_queue import BullQueue
from tests.conftest import need, own_prefix
from tests.support.web import WRITE_TOKEN, Web, serving
from tests.web.browser import Browser, chromium, programs


@dataclass(frozen=True)
class Site:
    """A server, the prefix of its queues, and their Redis."""

    web: Web
    prefix: str
    redis_url: str
    client: Redis

    @property
    def url(self) -> str:
        return self.web.url

    def forget_queues(self) -> None:
        """Lets the server find new queues at once, and not within some seconds."""
        self.web.server.config.app.state.queues.forget_names()

    def queue(self, name: str, **options: Any) -> BullQueue:
        return BullQueue(name, url=self.redis_url, prefix=self.prefix, **options)


@pytest.fixture(scope="module")
def site(client: Redis, redis_url: str, redis_kind: str) -> Iterator[Site]:
    """One server for all tests of a module, which use queues of different names."""
    with own_prefix(client, redis_kind) as prefix, serving(url=redis_url, prefix=prefix) as web:
        yield Site(web, prefix, redis_url, client)


@pytest.fixture(scope="session")
def driver() -> Iterator[webdriver.Chrome]:
    need(all(programs()), "needs chromium and chromedriver: run `tools/ensure-tools.sh chromium`")
    with chromium() as driver:
        yield driver


@pytest.fixture
def visitor(driver: webdriver.Chrome, site: Site) -> Iterator[Browser]:
    """A user without a token. At the end, no other host was asked, and the console has no errors."""
    browser = Browser(driver, site.url)
    browser.start()
    yield browser
    driver.get("about:blank")
    browser.use_scripts(True)
    assert browser.hosts() <= {site.url.removeprefix("http://")}
    assert browser.errors() == []


@pytest.fixture
def browser(visitor: Browser) -> Browser:
    """A user who has signed in with the write token."""
    visitor.sign_in(WRITE_TOKEN)
    return visitor
