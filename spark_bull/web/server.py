"""Runs the application with uvicorn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import uvicorn

from spark_bull.web.app import create_app
from spark_bull.web.settings import WebSettings

#: Seconds for which a stop waits for requests, s.
_GRACE_S: Final = 5


class WebServer(uvicorn.Server):
    """A server of one process. `started` is called with its URL when it listens."""

    def __init__(self, settings: WebSettings, listening: Callable[[str], None] = lambda url: None) -> None:
        self._listening = listening
        super().__init__(
            uvicorn.Config(
                create_app(settings),
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

    async def startup(self, sockets: list[object] | None = None) -> None:  # type: ignore[override]
        await super().startup(sockets)  # type: ignore[arg-type]
        if self.servers:
            self._listening(self.url)

    @property
    def url(self) -> str:
        """Where it listens."""
        host, port = self.servers[0].sockets[0].getsockname()[:2]
        return f"http://{f'[{host}]' if ':' in host else host}:{port}"
