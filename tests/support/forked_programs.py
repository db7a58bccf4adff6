"""Python processes forked from one that has imported their modules, and programs that tests run in them.

Python and these imports take more CPU to start than what the processes do. Most kill themselves, or are killed."""

from __future__ import annotations

import os
from collections.abc import Callable
from multiprocessing import get_context
from typing import Any

from spark_bull.core.queue.bull_queue import BullQueue
from spark_bull.run.job.running_job import RunningJob
from spark_bull.run.services.promoter import Promoter
from tests.support.wait import PATIENCE_S
from tests.support.worker import OurWorker

CONTEXT = get_context("forkserver")
CONTEXT.set_forkserver_preload([__name__, "tests.faults.programs"])


class ForkedProcess:
    """Runs a function of a module; it is killed at the end of the block, if it still runs."""

    def __init__(self, run: Callable[..., object], *arguments: Any, **named: Any) -> None:
        self._process = CONTEXT.Process(target=run, args=arguments, kwargs=named)
        self._process.start()

    def end_by(self, number: int) -> int | None:
        """Sends a signal, and waits for the end; the exit status, or minus the signal that ended the process."""
        assert self._process.pid is not None
        os.kill(self._process.pid, number)
        return self.wait(PATIENCE_S)

    def wait(self, timeout: float | None = None) -> int | None:
        """The exit status, or minus the signal that ended the process; None if it runs longer than `timeout`, s."""
        self._process.join(timeout)
        return self._process.exitcode

    def __enter__(self) -> ForkedProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.join()


def work(url: str, prefix: str, protocol: str, processor: Callable[[RunningJob], object], **settings: Any) -> None:
    """Runs a slot until the process is killed. processor: a function of a module."""
    queue = BullQueue("q", url=url, prefix=prefix, protocol=protocol)
    OurWorker(queue.handle, processor, **settings).loop.run()


def promote(url: str, prefix: str, queue: str = "q", **arguments: Any) -> None:
    """Runs a promoter until the process is killed."""
    with Promoter(url, [queue], prefix=prefix, **arguments) as promoter:
        promoter.await_termination()
