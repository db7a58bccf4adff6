"""Serves the metrics over HTTP, for Prometheus to scrape."""

from __future__ import annotations

import socket
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock
from typing import Final

from spark_bull.core.errors import SparkBullError
from spark_bull.ops.prometheus.families import CONTENT_TYPE

PATH: Final = "/metrics"
#: As the page's: whether the server runs, with or without Redis.
ALIVE: Final = "/healthz"
_PLAIN: Final = "text/plain; charset=utf-8"
#: Seconds after which an idle or slow client is disconnected.
_CLIENT_TIMEOUT_S: Final = 30.0


class MetricsServer(ThreadingHTTPServer):
    """A server whose path /metrics has the text that `read` returns, or 503 with the reason while it raises.

    Raises OSError when the address is not free.
    """

    daemon_threads = True

    def __init__(self, host: str, port: int, read: Callable[[], str]) -> None:
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._read, self._lock = read, Lock()
        super().__init__((host, port), _Handler)

    @property
    def url(self) -> str:
        """Where the metrics are."""
        host, port = self.server_address[:2]
        return f"http://{f'[{host!s}]' if ':' in str(host) else host!s}:{port}{PATH}"

    def answer(self, path: str) -> tuple[HTTPStatus, str, str]:
        """Status, content type and text for a path. One client at a time reads Redis."""
        if path == ALIVE:
            return HTTPStatus.OK, _PLAIN, "ok\n"
        if path == "/":
            return HTTPStatus.OK, _PLAIN, f"The metrics are at {PATH}.\n"
        if path != PATH:
            return HTTPStatus.NOT_FOUND, _PLAIN, f"no such page: expected {PATH}\n"
        try:
            with self._lock:
                return HTTPStatus.OK, CONTENT_TYPE, self._read() + "\n"
        except SparkBullError as error:
            return HTTPStatus.SERVICE_UNAVAILABLE, _PLAIN, f"{error}\n"


class _Handler(BaseHTTPRequestHandler):
    """Answers GET and HEAD; other methods are 405."""

    server: MetricsServer
    timeout = _CLIENT_TIMEOUT_S
    server_version, sys_version = "spark-bull", ""

    def do_GET(self) -> None:
        self._send(*self.server.answer(self.path.partition("?")[0]))

    do_HEAD = do_GET

    def _refuse(self) -> None:
        self._send(HTTPStatus.METHOD_NOT_ALLOWED, _PLAIN, "expected GET or HEAD\n")

    do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = _refuse

    def _send(self, status: HTTPStatus, content_type: str, text: str) -> None:
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        if status is HTTPStatus.METHOD_NOT_ALLOWED:
            self.send_header("Allow", "GET, HEAD")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Requests are not logged: Prometheus scrapes every few seconds."""
