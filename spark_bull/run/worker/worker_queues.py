"""Which queues a Worker processes, and how often each is asked first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from spark_bull.core.errors import OptionError, did_you_mean, expected
from spark_bull.core.options.table import WorkOptions
from spark_bull.core.queue.handle.handle import QueueHandle
from spark_bull.core.queue.shards.layout import queues_of


@dataclass(frozen=True)
class WorkedQueue:
    """A queue of a Worker. weight: how often it is asked first, in proportion to the others; 0: in the listed order."""

    name: str
    weight: int = 0


def worked_queues(
    queue: str | None, queues: Sequence[str] | None, weights: Mapping[str, int] | None
) -> tuple[WorkedQueue, ...]:
    """Returns the queues in their order. Raises OptionError for arguments that are wrong or contradict each other."""
    names = _names(queue, queues)
    if weights is None or weights == {}:
        return tuple(WorkedQueue(name) for name in names)
    if not isinstance(weights, Mapping):
        raise expected("weights", "a mapping of queues to numbers, such as {'urgent': 3, 'mail': 1}", weights)
    for name, weight in weights.items():
        if name not in names:
            raise OptionError(f"expected `weights` of queues of this worker, got: {name!r}{did_you_mean(name, names)}")
        if not isinstance(weight, int) or isinstance(weight, bool) or weight < 1:
            raise expected(f"weights[{name!r}]", "a positive integer", weight)
    return tuple(WorkedQueue(name, weights.get(name, 1)) for name in names)


class OpenedQueue(NamedTuple):
    """A queue of a Worker, or a shard of one, and its weight."""

    handle: QueueHandle
    weight: int


def opened(options: WorkOptions, worked: Sequence[WorkedQueue]) -> list[OpenedQueue]:
    """Opens queues; with the option `shards`, all shards of each, which are asked first in turns."""
    turns = 0 if options.shards is None else 1
    return [OpenedQueue(handle, one.weight or turns) for one in worked for handle in queues_of(options, one.name)]


def _names(queue: str | None, queues: Sequence[str] | None) -> tuple[str, ...]:
    if (queue is None) == (queues is None):
        raise OptionError("expected one of `queue` (a name) and `queues` (a list of names)")
    if queue is not None:
        if not isinstance(queue, str):
            raise OptionError(f"expected `queue` to be the name of a queue, got: {queue!r}; give several as `queues`")
        return (queue,)
    if isinstance(queues, str):
        queues = [part.strip() for part in queues.split(",")]
    names = tuple(queues) if isinstance(queues, Sequence) else ()
    if not names or not all(isinstance(name, str) and name for name in names):
        raise expected("queues", "a list of names", queues)
    if len(set(names)) < len(names):
        raise expected("queues", "different names", queues)
    return names
