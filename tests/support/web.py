"""The web server in a thread of the test."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Event, Thread
from typing import Any

import httpx

from spark_bull.ops.web.server import WebServer
from spark_bull.ops.web.settings import WebSettings
from tests.support.wait import PATIENCE_S

READ_TOKEN = "a token for reading"
WRITE_TOKEN = "a token for writing"
READING = {"Authorization": f"Bearer {READ_TOKEN}"}
WRITING = {"Authorization": f"Bearer {WRITE_TOKEN}"}


@dataclass
class Web:
    """A running server. `client`: without a token; `url`: of the server."""

    server: WebServer
    url: str
    client: httpx.Client

    def get(self, path: str, *, code: int = 200, **parameters: Any) -> Any:
        return self.ask("GET", path, code=code, params=parameters or None, headers=READING).json()

    def post(self, path: str, body: Any = None, *, code: int = 204) -> Any:
        answer = self.ask("POST", path, code=code, json=body, headers=WRITING)
        return answer.json() if answer.content else None

    def ask(self, method: str, path: str, *, code: int, **request: Any) -> httpx.Response:
        answer = self.client.request(method, f"/api{path}", **request)
        assert answer.status_code == code, answer.text
        if code >= 400:
            assert answer.headers["content-type"] == "application/problem+json"
            assert answer.json()["status"] == code
        return answer


@contextmanager
def serving(**settings: Any) -> Iterator[Web]:
    """Starts a server on a free port; it has both tokens unless `settings` say otherwise."""
    listening, urls = Event(), []

    def note(url: str) -> None:
        urls.append(url)
        listening.set()

    tokens = {"read_token": READ_TOKEN, "write_token": WRITE_TOKEN}
    server = WebServer(WebSettings(**{"port": 0, **tokens, **settings}), note)
    thread = Thread(target=server.run, name="web server", daemon=True)
    thread.start()
    assert listening.wait(PATIENCE_S), "the server does not listen"
    try:
        with httpx.Client(base_url=urls[0], timeout=PATIENCE_S) as client:
            yield Web(server, urls[0], client)
    finally:
        server.should_exit = True
        thread.join(PATIENCE_S)
