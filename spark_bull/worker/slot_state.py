"""The state of a slot, such as a model or a pool of connections, made once for all its jobs."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Iterator
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    AsyncExitStack,
    ExitStack,
    asynccontextmanager,
    contextmanager,
)
from typing import Any, Final, Protocol

from spark_bull.error_text import described
from spark_bull.errors import WorkerFailed
from spark_bull.worker.job_tasks import JobTasks

log = logging.getLogger("spark_bull")

#: Maximum duration of the close in an event loop, s: a coroutine that failed to end may block the loop.
_CLOSE_S: Final = 30.0
#: Returns or yields the state, or returns a context manager that has it; also as a coroutine.
Setup = Callable[[], Any]


class _State(Protocol):
    def open(self) -> Any: ...

    def close(self) -> None: ...


@contextmanager
def slot_state(setup: Setup | None, tasks: JobTasks | None = None) -> Iterator[Any]:
    """Makes the state, and closes it when the block is left. tasks: where coroutine functions run, and then `setup`.

    Raises WorkerFailed if it cannot be made. An error while it is closed is logged.
    """
    if setup is None:
        yield None
        return
    state: _State = _Plain(setup) if tasks is None else _InEventLoop(setup, tasks)
    try:
        value = state.open()
    except Exception as error:
        raise WorkerFailed(f"expected `setup` to return the state of a slot, it raised {described(error)}") from error
    try:
        yield value
    finally:
        try:
            state.close()
        except Exception as error:
            log.warning("closing what `setup` returned failed (%s)", described(error), exc_info=error)


class _Plain:
    """Runs `setup` in this thread."""

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._stack = ExitStack()

    def open(self) -> Any:
        made = self._setup()
        if inspect.isgenerator(made):
            return self._stack.enter_context(contextmanager(lambda: made)())
        if inspect.isawaitable(made):
            if inspect.iscoroutine(made):
                made.close()
            raise TypeError("expected a value, got an awaitable: only with coroutine functions, it is awaited")
        if callable(close := getattr(made, "close", None)):
            # Also for context managers: a connection to a database enters a transaction, and stays open.
            self._stack.callback(close)
            return made
        if isinstance(made, AbstractContextManager):
            return self._stack.enter_context(made)
        return made

    def close(self) -> None:
        self._stack.close()


class _InEventLoop:
    """Runs `setup` in the event loop in which the coroutine functions run."""

    def __init__(self, setup: Setup, tasks: JobTasks) -> None:
        self._setup = setup
        self._tasks = tasks
        self._stack = AsyncExitStack()

    def open(self) -> Any:
        return self._tasks.run(self._open())

    def close(self) -> None:
        self._tasks.run(self._stack.aclose(), _CLOSE_S)

    async def _open(self) -> Any:
        made = self._setup()
        if inspect.isawaitable(made):
            made = await made
        if inspect.isasyncgen(made):
            return await self._stack.enter_async_context(asynccontextmanager(lambda: made)())
        if inspect.isgenerator(made):
            return self._stack.enter_context(contextmanager(lambda: made)())
        if isinstance(made, AbstractAsyncContextManager):
            return await self._stack.enter_async_context(made)
        if callable(close := getattr(made, "close", None)):
            self._stack.push_async_callback(_called, close)
            return made
        if isinstance(made, AbstractContextManager):
            return self._stack.enter_context(made)
        return made


async def _called(close: Callable[[], Any]) -> None:
    answer = close()
    if inspect.isawaitable(answer):
        await answer
