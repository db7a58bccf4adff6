"""The state of a slot, such as a model or a pool of connections, made once for all its jobs."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    AsyncExitStack,
    ExitStack,
    asynccontextmanager,
    contextmanager,
)
from threading import Lock
from typing import Any, Final, Protocol

from spark_bull.core.error_text import described
from spark_bull.core.errors import WorkerFailed
from spark_bull.run.job.interrupts import raise_if_interrupted
from spark_bull.run.job.job_threads import JobTasks

log = logging.getLogger("spark_bull")

#: Maximum duration of the close in an event loop, s: a coroutine that failed to end may block the loop.
_CLOSE_S: Final = 30.0
#: Returns or yields the state, or returns a context manager that has it; also as a coroutine.
Setup = Callable[[], Any]


class SetupFailed(WorkerFailed):
    """`setup` could not make the state of a slot, or the state ended before the slot."""


class _State(Protocol):
    def open(self) -> Any: ...

    def close(self) -> None: ...


class SlotState:
    """Makes the state at the start of a block, and closes it at its end, or before.

    tasks: where coroutine functions run, and then `setup`; there a state may end by itself, which calls `on_end`.

    Raises SetupFailed if the state cannot be made, or has ended by itself. An error while it is closed is logged.
    """

    def __init__(
        self, setup: Setup | None, tasks: JobTasks | None = None, on_end: Callable[[], None] = lambda: None
    ) -> None:
        self._state: _State | None = None
        if setup is not None:
            self._state = _Plain(setup) if tasks is None else _InEventLoop(setup, tasks, on_end)
        self._closing = Lock()

    def __enter__(self) -> Any:
        if self._state is None:
            return None
        try:
            return self._state.open()
        except BaseException as error:
            raise_if_interrupted()
            raise SetupFailed(
                f"expected `setup` to return the state of a slot, it raised {described(error)}"
            ) from error

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the state, once; may be called in any thread."""
        with self._closing:
            state, self._state = self._state, None
        try:
            if state is not None:
                state.close()
        except SetupFailed:
            raise
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
    """Runs `setup` in the event loop in which the coroutine functions run.

    One task opens the state and closes it, as task groups and timeouts in it require.
    """

    def __init__(self, setup: Setup, tasks: JobTasks, on_end: Callable[[], None]) -> None:
        self._setup = setup
        self._tasks = tasks
        self._on_end = on_end
        self._opened: Future[Any] = Future()
        self._over = asyncio.Event()
        self._ended: Future[None] = Future()

    def open(self) -> Any:
        self._ended = self._tasks.submit(self._hold())
        value = self._opened.result()
        self._ended.add_done_callback(lambda _: self._on_end())
        return value

    def close(self) -> None:
        if self._ended.done():
            error = None if self._ended.cancelled() else self._ended.exception()
            why = described(error) if error else "without an error"
            raise SetupFailed(f"expected the state of a slot to last as long as the slot, it ended: {why}") from error
        self._tasks.call(self._over.set)
        self._ended.result(_CLOSE_S)

    async def _hold(self) -> None:
        """Opens the state, waits until it is to be closed, and closes it."""
        try:
            async with AsyncExitStack() as stack:
                self._opened.set_result(await self._made(stack))
                await self._over.wait()
        except BaseException as error:
            if self._opened.done():
                raise
            self._opened.set_exception(error)

    async def _made(self, stack: AsyncExitStack) -> Any:
        made = self._setup()
        if inspect.isawaitable(made):
            made = await made
        if inspect.isasyncgen(made):
            return await stack.enter_async_context(asynccontextmanager(lambda: made)())
        if inspect.isgenerator(made):
            return stack.enter_context(contextmanager(lambda: made)())
        if isinstance(made, AbstractAsyncContextManager):
            return await stack.enter_async_context(made)
        if callable(close := getattr(made, "close", None)):
            stack.push_async_callback(_called, close)
            return made
        if isinstance(made, AbstractContextManager):
            return stack.enter_context(made)
        return made


async def _called(close: Callable[[], Any]) -> None:
    answer = close()
    if inspect.isawaitable(answer):
        await answer
