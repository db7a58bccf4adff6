"""Runs the application with uvicorn."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Final

import uvicorn

from spark_bull.core.errors import OptionError
from spark_bull.ops.web.app import create_app
from spark_bull.ops.web.settings import WebSettings

#: Seconds for which a stop waits for requests, s.
_GRACE_S: Final = 5


class WebServer(uvicorn.Server):
    """A server of one process. `listening` is called with its URL when it answers.

    Raises OptionError for an address that it can't listen on.
    """

    def __init__(self, settings: WebSettings, listening: Callable[[str], None] = lambda url: None) -> None:
        self._listening = listening
        self.app = create_app(settings)
        self._socket = _socket_of(settings)
        super().__init__(
            uvicorn.Config(
                self.app,
                settings.host,
                settings.port,
                lifespan="off",
                log_level="warning",
                # Queries can contain searched texts.
                access_log=False,
                server_header=False,
                timeout_graceful_shutdown=_GRACE_S,
            )
        )

    def run(self, sockets: list[socket.socket] | None = None) -> None:
        """Serves until SIGINT or SIGTERM."""
        super().run([self._socket])

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._listening(self.url)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self.app.state.streams.close()
        self.app.state.history.close()
        await super().shutdown(sockets)

    @property
    def url(self) -> str:
        """Where it listens."""
        host, port = self._socket.getsockname()[:2]
        return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def _socket_of(settings: WebSettings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    try:
        return socket.create_server((settings.host, settings.port), family=family)
    except OSError as error:
        raise OptionError(
            f"expected an address of this machine with a free port, got: {settings.host}:{settings.port} "
            f"({error.strerror})"
        ) from None
