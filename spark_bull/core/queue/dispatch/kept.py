"""Payloads of encoded jobs as Redis keeps them: encrypted, or stored elsewhere."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from spark_bull.core.dialects.encode.chunks import EncodedJobs
from spark_bull.core.queue.handle.handle import QueueHandle


def kept(handle: QueueHandle, jobs: EncodedJobs, source: str | None, numbers: Iterable[int | str]) -> EncodedJobs:
    """The jobs of a queue, with their payloads as Redis keeps them.

    source: names what adds the jobs once: a call, or one attempt of a task, as others may add the same rows; None: all
    payloads stay in Redis. numbers: places of the jobs among all jobs of the source. Raises OptionError and
    PayloadNotStored.
    """
    if handle.payloads.passes(jobs.data):
        return jobs
    sources = [None if source is None else f"{source}:{number}" for number in numbers]
    data = [handle.kept("data", text, one) for text, one in zip(jobs.data, sources, strict=True)]
    return replace(jobs, data=data)
