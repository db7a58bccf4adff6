"""The application, the API and the page, and the server that runs it with uvicorn."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Final

import uvicorn
from fastapi import APIRouter, Depends, FastAPI, Request
from fastapi.responses import PlainTextResponse

from spark_bull.core.errors import OptionError
from spark_bull.core.version import VERSION
from spark_bull.ops.web.access import Access, authorize
from spark_bull.ops.web.api import activity, changes, events, jobs, queues
from spark_bull.ops.web.api.description import known_parameters
from spark_bull.ops.web.api.description import router as description
from spark_bull.ops.web.api.events import StreamSlots
from spark_bull.ops.web.bulk_changes import BulkChanges
from spark_bull.ops.web.middleware import RequestRules
from spark_bull.ops.web.page.login import error_page
from spark_bull.ops.web.page.routes import add_page
from spark_bull.ops.web.problems import ALIVE, READY, handle_errors
from spark_bull.ops.web.queue_access import KnownReaders, Queues
from spark_bull.ops.web.settings import WebSettings

probes: Final = APIRouter(include_in_schema=False)


@probes.get(ALIVE)
async def alive() -> PlainTextResponse:
    """Whether the server runs; nothing about Redis, as a restart of the server would not help."""
    return PlainTextResponse("ok\n")


@probes.get(READY)
def ready(request: Request) -> PlainTextResponse:
    """Whether queues can be read. Raises ConnectionLost, also for a cluster that is down but answers PING."""
    queues: Queues = request.app.state.queues
    queues.check_readable()
    return PlainTextResponse("ok\n")


def create_app(settings: WebSettings) -> FastAPI:
    """Creates the application. Redis is reached with the first request.

    Parameters:
      settings: the settings.

    Returns:
      An ASGI application.

    Raises:
      OptionError: for a wrong URL of Redis.
    """
    app = FastAPI(
        title="spark_bull",
        version=VERSION,
        description="Queues of Bull and BullMQ. Times are ms since 1970, durations ms, unless a name says otherwise.",
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
    )
    app.state.settings = settings
    app.state.access = Access(settings)
    app.state.queues = Queues(settings)
    app.state.streams = StreamSlots()
    app.state.readers = KnownReaders()
    app.state.changes = BulkChanges()
    handle_errors(app, error_page)
    for router in (probes, description):
        app.include_router(router)
    for router in (queues.router, jobs.router, changes.router, activity.router, activity.groups_router, events.router):
        app.include_router(router, prefix="/api", dependencies=[Depends(authorize), Depends(known_parameters)])
    add_page(app)
    # Around all middleware of Starlette: the answer to an unexpected error has the security headers, too.
    app.middleware_stack = RequestRules(app.build_middleware_stack(), settings)
    return app


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
