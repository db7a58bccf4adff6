"""Two sides under two prefixes: Node works on the left one, we on the right one, and both must stay equal.

    with closing(TwoSides(peer, nodes, prefixes, client, url)) as sides:
        sides.begin()
        answers = sides.both(lambda: sides.node("pause", queue="main"), lambda: sides.ours["main"].pause())
        assert sides.differences(answers) == []

The replies, all keys and the published messages are compared, without times, tokens and random ids: the job of a random
id is named by the member `n` of its payload. `_comparable` and the methods below it know the intended differences.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from redis import Redis

from spark_bull.core.errors import SparkBullError
from spark_bull.core.keys import literal_glob
from spark_bull.core.queue.bull_queue import BullQueue
from tests.support.dump import (
    PRIVATE,
    UUID,
    Dump,
    Key,
    Moments,
    Window,
    difference,
    dump,
    is_job,
    normalise,
    normalise_messages,
)
from tests.support.jobs import HOUR
from tests.support.node import NodeError, NodePeer, Peer
from tests.support.wait import PATIENCE_S, wait_until

#: Queues of each side; children of flows may be in the other one.
QUEUES = ("main", "other")
#: Maximum distance of a time from the whole hour after which it is named.
SLACK = 20 * 60_000
#: The messages of both sides about a parent that cannot complete.
BLOCKED = re.compile(r"Cannot complete job \S+ because[^\"]*|Job \S+ has (a failed child|pending dependencies)[^\"]*")
#: Jobs that finish in one millisecond have no order.
_UNORDERED = ("completed", "failed", "waiting-children", "unsuccessful")


class Hours(Moments):
    """Names times as whole hours from the start of the test, which takes much less than an hour."""

    def name(self, moment: float | str) -> Any:
        try:
            number = float(moment)
        except (TypeError, ValueError):
            return moment
        for start, said in ((self.window.start, "now"), (0, "")):
            hours, rest = divmod(number - start + SLACK, HOUR)
            if rest < 2 * SLACK and abs(hours) < 1000 and (start or hours > 0):
                return f"<{said} + {hours:.0f} h>"
        return moment

    def delayed(self, score: float) -> Any:
        return self.name(score // 4096)


class Answers(NamedTuple):
    """The replies of both sides to a step, and what it excuses."""

    left: Any = None
    right: Any = None
    #: Channels whose messages are not compared: Node publishes them again although the state does not change.
    unheard: tuple[str, ...] = ()
    #: Whether jobs may be removed, and parents released, in another order: we begin with the oldest job of a state, and
    #: remove children before parents.
    releases: bool = False
    #: Whether Node's call that delays a failed job also claims the next one: then Node, unlike us, does not set the
    #: marker to the time of the first delayed job.
    delays_unmarked: bool = False
    #: Whether BullMQ 5 resumed a queue that was not paused: Node, unlike us, does not wake workers for waiting jobs.
    wakes_none: bool = False


@dataclass
class TwoSides:
    """`nodes`: a Node library for each of the prefixes; `raw`: all keys after the last comparison.

    `is_exact`: times are compared to the ms, markers without exceptions, and the events of all steps so far.
    """

    peer: Peer
    nodes: tuple[NodePeer, NodePeer]
    prefixes: tuple[str, str]
    client: Redis
    url: str
    window: Window = field(default_factory=Window)
    raw: tuple[Dump, Dump] = ({}, {})
    is_exact: bool = False

    def __post_init__(self) -> None:
        options = {"url": self.url, "prefix": self.prefixes[1], "protocol": self.peer.dialect}
        if self.bullmq:
            options["bullmq_version"] = self.version
        self.ours = {name: BullQueue(name, **options) for name in QUEUES}
        self._listener = self.client.pubsub()
        for node, prefix in zip(self.nodes, self.prefixes, strict=True):
            self._listener.psubscribe(f"{literal_glob(prefix)}:*")
            self._listener.get_message(timeout=PATIENCE_S)
            for queue in QUEUES:
                node.call("counts", queue=queue)
                if self.peer.dialect != "bull-1":
                    node.call("claim", queue=queue, count=0)
                if self.bullmq:
                    meta = f"{prefix}:{queue}:meta"
                    wait_until(lambda meta=meta: self.client.hget(meta, "version"), f"Node to write {meta}")

    @property
    def bullmq(self) -> bool:
        return self.peer.dialect == "bullmq"

    @property
    def version(self) -> str:
        """The major version of the Node package."""
        return self.peer.alias.partition("-")[2].partition(".")[0]

    def close(self) -> None:
        self._listener.close()
        for queue in self.ours.values():
            queue.close()
        self._clear()

    def _clear(self) -> None:
        for prefix in self.prefixes:
            if keys := self.client.keys(f"{literal_glob(prefix)}:*"):
                self.client.unlink(*keys)

    def begin(self) -> None:
        """Goes on with empty queues."""
        self._clear()
        self._messages()
        self.window = Window()
        if self.bullmq:
            # As Node writes it when a queue is opened.
            signs = {"version": self.peer.alias.replace("-", ":"), "opts.maxLenEvents": 10_000}
            for base in self._bases():
                self.client.hset(f"{base}meta", mapping=signs)
        self._look()

    def node(self, cmd: str, side: int = 0, **args: Any) -> Any:
        """Node does this on one side. "<prefix>" in an argument becomes the prefix of the side."""
        return self.nodes[side].call(cmd, **on_side(args, self.prefixes[side]))

    def by_node(self, cmd: str, **args: Any) -> Answers:
        """Node does this on both sides."""
        return self.both(lambda: self.node(cmd, 0, **args), lambda: self.node(cmd, 1, **args))

    def both(self, left: Callable[[], Any], right: Callable[[], Any], **excused: Any) -> Answers:
        """The replies of both sides; errors count as equal, since their messages differ. excused: see Answers."""
        return Answers(_answer(left), _answer(right), **excused)

    def differences(self, answers: Answers) -> list[str]:
        """The differences after a step."""
        if answers.releases:
            self._order_as_in_node()
        self._look()
        # Bull publishes `drained` whenever a worker finds no job, we when the last job is settled. Bull 3 publishes no
        # duplicates.
        unheard = answers.unheard if self.bullmq else (*answers.unheard, "drained")
        unheard += ("duplicated@<token>",) if self.peer.alias.startswith("bull-3") else ()
        heard = [[one for one in side if one[0] not in unheard] for side in self._messages()]
        left, right = (self._comparable_keys(side, answers) for side in (0, 1))
        if self.bullmq and not self.is_exact:
            _forgive_markers(left, right, answers)
        found = [f"answer{sentence}" for sentence in difference({"": answers.left}, {"": answers.right})]
        found += difference(left, right) + [f"published{sentence}" for sentence in difference(*heard)]
        self._go_on()
        return found

    def _go_on(self) -> None:
        """So that the next step shows only its own events."""
        if self.is_exact:
            return
        for base in self._bases():
            self.client.delete(f"{base}marker")
            self.client.xtrim(f"{base}events", maxlen=0, approximate=False)
        self._stamp_as_in_node()

    def _bases(self) -> Iterable[str]:
        return (f"{prefix}:{queue}:" for prefix in self.prefixes for queue in QUEUES)

    def _look(self) -> None:
        left, right = (
            {
                f"{queue}:{name}": key
                for queue in QUEUES
                for name, key in dump(self.client, prefix, queue).items()
                if not name.startswith(PRIVATE)
            }
            for prefix in self.prefixes
        )
        self.raw = left, right

    # what Node's side has

    def key(self, name: str) -> Any:
        """The value of a key of Node's side, `<queue>:<name>`; an empty list if there is none."""
        return self.raw[0][name].value if name in self.raw[0] else []

    def has(self, name: str) -> bool:
        return name in self.raw[0]

    def ids(self, queue: str, state: str) -> list[str]:
        """Ids of the jobs in a state, in order; also of `any` jobs, of each `child` and of each unfinished `parent`."""
        if state in ("any", "child", "parent"):
            jobs = [name.partition(":")[2] for name, key in self.raw[0].items() if is_opts(key)]
            found = [name for name in jobs if self.has(f"{queue}:{name}") and not name.startswith("d")]
            return [
                job_id
                for job_id in found
                if state == "any"
                or (state == "child" and "parentKey" in self.key(f"{queue}:{job_id}"))
                or (state == "parent" and self.has(f"{queue}:{job_id}:dependencies"))
            ]
        return [member if isinstance(member, str) else member[0] for member in self.key(f"{queue}:{state}")]

    def is_paused(self, queue: str) -> bool:
        return self.has(f"{queue}:meta-paused") or "paused" in self.key(f"{queue}:meta")

    # comparison

    def _comparable_keys(self, side: int, answers: Answers) -> dict[str, Any]:
        normal: dict[str, Any] = {}
        for queue in QUEUES:
            keys = {
                name.removeprefix(f"{queue}:"): key
                for name, key in self.raw[side].items()
                if name.startswith(f"{queue}:")
            }
            for name, key in normalise(keys, self.window, self._moments()).items():
                normal[f"{queue}:{name}"] = {key.type: key.value, "expires": key.expires}
            if _may_be_taken(keys):
                normal.setdefault(f"{queue}:marker", {"zset": []})["job may be taken"] = True
        renamed = _renamed(normal, {f"{self.prefixes[side]}:": "<prefix>:", **_random_ids(self.raw[side])})
        return {
            name: {kind: _comparable(name.rpartition(":")[2], kind, value, answers) for kind, value in key.items()}
            for name, key in renamed.items()
        }

    def _order_as_in_node(self) -> None:
        for name in [f"{queue}:{waiting}" for queue in QUEUES for waiting in ("wait", "paused")]:
            left, ours = (self.client.lrange(f"{prefix}:{name}", 0, -1) for prefix in self.prefixes)
            if left != ours and sorted(left) == sorted(ours):
                self.client.delete(f"{self.prefixes[1]}:{name}")
                self.client.rpush(f"{self.prefixes[1]}:{name}", *left)

    def _stamp_as_in_node(self) -> None:
        """Copies Node's times: Node settles jobs one by one, we settle a chunk in one millisecond."""
        for name in [f"{queue}:{state}" for queue in QUEUES for state in ("completed", "failed", "delayed")]:
            keys = (side.get(name) for side in self.raw)
            scores, ours = (dict(key.value) if key and key.type == "zset" else {} for key in keys)
            # Random ids are not the same.
            if scores and scores.keys() == ours.keys():
                self.client.zadd(f"{self.prefixes[1]}:{name}", scores, xx=True)

    def _messages(self) -> list[list[Any]]:
        heard: dict[str, list[tuple[str, str]]] = {prefix: [] for prefix in self.prefixes}
        missing = [f"{prefix}:end:of" for prefix in self.prefixes]
        for end in missing:
            self.client.publish(end, b"")
        while missing:
            message = self._listener.get_message(timeout=PATIENCE_S)
            if message is None:
                raise AssertionError("expected the messages of both sides, received nothing for minutes")
            if message["type"] == "pmessage":
                channel, text = message["channel"].decode(), message["data"].decode()
                if channel in missing:
                    missing.remove(channel)
                else:
                    heard[channel.partition(":")[0]].append((channel, text))
        return [
            normalise_messages(heard[prefix], prefix, raw, self.window, self._moments())
            for prefix, raw in zip(self.prefixes, self.raw, strict=True)
        ]

    def _moments(self) -> type[Moments]:
        return Moments if self.is_exact else Hours


def on_side(value: Any, prefix: str) -> Any:
    """The value with the prefix of a side in place of "<prefix>"."""
    return json.loads(json.dumps(value).replace("<prefix>", prefix))


def is_opts(key: Key) -> bool:
    return key.type == "hash" and "opts" in key.value


def _answer(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except (NodeError, SparkBullError):
        return "refused"


def _random_ids(raw: Dump) -> dict[str, str]:
    """Names for the random ids of jobs."""
    jobs = ((name.partition(":")[2], key) for name, key in raw.items() if is_job(key))
    return {name: f"<job {_payload(key.value['data']).get('n')}>" for name, key in jobs if UUID.fullmatch(name)}


def _payload(text: str) -> dict[str, Any]:
    parsed = json.loads(text)
    return parsed if isinstance(parsed, dict) else {}


def _renamed(value: Any, names: dict[str, str]) -> Any:
    text = BLOCKED.sub("<blocked>", json.dumps(value))
    for old, new in names.items():
        text = text.replace(old, new)
    return json.loads(UUID.sub("<dropped job>", text))


def _comparable(name: str, kind: str, value: Any, answers: Answers) -> Any:
    """The value of a key without intended differences."""
    if (
        kind == "set"
        or (kind == "zset" and name in _UNORDERED)
        # Jobs removed and parents released in one call have no order.
        or (kind == "stream" and answers.releases)
    ):
        return sorted(value, key=str)
    if kind == "hash" and isinstance(value.get("stacktrace"), list):
        # Traces depend on the language.
        return {**value, "stacktrace": len(value["stacktrace"])}
    # The time of the check for stalled jobs.
    return "<now>" if name == "stalled-check" and kind == "string" else value


def _forgive_markers(left: dict[str, Any], right: dict[str, Any], answers: Answers) -> None:
    """Node's claims leave a marker although no job may be claimed, we write one only if a job may be claimed."""
    for name in [f"{queue}:marker" for queue in QUEUES]:
        theirs, ours = (side.pop(name, {"zset": []}) for side in (left, right))
        if answers.wakes_none:
            continue
        due = [[pair for pair in marker["zset"] if pair[0] != "0"] for marker in (theirs, ours)]
        if answers.delays_unmarked:
            due = [[], []]
        theirs_wakes, ours_wakes = (any(pair[0] == "0" for pair in marker["zset"]) for marker in (theirs, ours))
        if "job may be taken" in ours:
            left[name], right[name] = [due[0], theirs_wakes], [due[1], ours_wakes and theirs_wakes]
        else:
            left[name], right[name] = [due[0], theirs_wakes and ours_wakes], [due[1], ours_wakes]


def _may_be_taken(queue: Dump) -> bool:
    """Whether a BullMQ worker could claim a job."""
    meta = queue["meta"].value if "meta" in queue else {}
    active = len(queue["active"].value) if "active" in queue else 0
    maxed = "concurrency" in meta and active >= int(meta["concurrency"])
    return ("wait" in queue or "prioritized" in queue) and "paused" not in meta and not maxed
