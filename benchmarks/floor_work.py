"""Benchmark of what Redis does for a job of a worker, beside the bare commands that the job needs.

    .venv/bin/python -m benchmarks.floor_work --rounds 5
    .venv/bin/python -m benchmarks.floor_work --instructions     # counted by valgrind, whatever else runs

One client settles and claims jobs of 200 bytes on fresh servers, in turns with a script of the bare commands. Prints
medians and writes them to benchmarks/results/floor_work.json. See benchmarks/README.md.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from functools import partial
from typing import Any, Final

import msgpack

from benchmarks.floor import Side, add, cpu_us, instructions
from benchmarks.report import Verdict, at_most, show_verdicts, write_results
from spark_bull.core.dialects.base import json_text
from spark_bull.core.model.outcomes import Outcomes
from spark_bull.core.options.table import ALL_EVENTS
from spark_bull.core.queue.handle.claim_settings import ClaimSettings
from spark_bull.core.queue.handle.handle import QueueHandle
from spark_bull.core.queue.work.claim import work

#: The commands that BullMQ's format demands to settle a chunk and claim the next one, and nothing else. ARGV: the ids
#: of the chunk, the beginning of keys, the time, the token, the name of the worker, the number of jobs to claim, and
#: whether there are events. Returns the packed ids and columns of the claimed jobs.
COMMANDS: Final = """
local call, base, now, token, worker, has_events = redis.call, ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[7] == '1'
local active, wait, events = base .. 'active', base .. 'wait', base .. 'events'
local done = cmsgpack.unpack(ARGV[1])
if #done > 0 then
  local keys, locks, relatives, scored = {}, {}, {}, {}
  for i, id in ipairs(done) do
    local key = base .. id
    keys[i], locks[i], scored[2 * i - 1], scored[2 * i] = key, key .. ':lock', now, id
    relatives[2 * i - 1], relatives[2 * i] = key .. ':dependencies', key .. ':unsuccessful'
  end
  call('EXISTS', unpack(relatives))
  call('MGET', unpack(locks))
  call('LTRIM', active, 0, -#done - 1)
  call('DEL', unpack(locks))
  call('XTRIM', events, 'MAXLEN', '~', 10000)
  for i, id in ipairs(done) do
    call('HMGET', keys[i], 'atm', 'parentKey', 'deid')
    call('HSET', keys[i], 'atm', '1', 'returnvalue', 'null', 'finishedOn', now)
    if has_events then
      call('XADD', events, '*', 'event', 'completed', 'jobId', id, 'returnvalue', 'null', 'prev', 'active')
    end
  end
  call('ZADD', base .. 'completed', unpack(scored))
end
local waiting = call('LRANGE', wait, -ARGV[6], -1)
local ids, datas, timestamp, name, opts = {}, {}, nil, nil, nil
for i = 1, #waiting do
  local id = waiting[#waiting - i + 1]
  local key = base .. id
  local row = call('HMGET', key, 'timestamp', 'data', 'name', 'opts')
  call('SET', key .. ':lock', token, 'PX', '30000')
  call('HSET', key, 'processedOn', now, 'pb', worker, 'ats', '1')
  if has_events then
    call('XADD', events, '*', 'event', 'active', 'jobId', id, 'prev', 'waiting')
  end
  ids[i], datas[i], timestamp, name, opts = id, row[2], row[1], row[3], row[4]
end
if #ids > 0 then
  call('LTRIM', wait, 0, -#ids - 1)
  call('LPUSH', active, unpack(ids))
end
return cmsgpack.pack({ids, datas, timestamp, name, opts})
"""
WORKER, TOKEN = "spark-floor", "floor"
#: The most that work may take, x the bare commands.
TARGET: Final = 1.12


def fill(handle: QueueHandle, jobs: int) -> Callable[[], object]:
    """Adds the jobs, and works none of them."""
    add(handle, jobs)()
    return lambda: None


def commands(handle: QueueHandle, jobs: int, chunk: int, events: str = ALL_EVENTS) -> Callable[[], object]:
    fill(handle, jobs)
    call, base = handle.connection.call, handle.keys.base
    script = call("SCRIPT", "LOAD", COMMANDS)

    def run() -> None:
        done: list[bytes] = []
        for _ in range(0, jobs + chunk, chunk):
            packed = msgpack.packb(done, use_bin_type=False)
            now = time.time_ns() // 1_000_000
            reply = call("EVALSHA", script, 0, packed, base, now, TOKEN, WORKER, chunk, int(events == ALL_EVENTS))
            done = msgpack.unpackb(reply, raw=True)[0]

    return run


def scripts(handle: QueueHandle, jobs: int, chunk: int, events: str = ALL_EVENTS) -> Callable[[], object]:
    """Works as a slot of the loop engine does."""
    fill(handle, jobs)
    keys = handle.keys
    worker = replace(handle, events=events)
    settings = ClaimSettings(TOKEN, worker=WORKER, control=keys.control("x"), counters=keys.counters("x"))
    value = json_text("returnvalue", None)

    def run() -> None:
        outcomes: Outcomes | None = None
        for _ in range(0, jobs + chunk, chunk):
            claim = work(worker, settings, outcomes, chunk)
            outcomes = Outcomes(claim.token)
            for job in claim.jobs:
                outcomes.complete(job.id, value)

    return run


_GIVEN: Final[Mapping[str, Mapping[str, Any]]] = {
    "chunks of 100": {"chunk": 100},
    "chunks of 200": {"chunk": 200},
    "chunks of 200, events=none": {"chunk": 200, "events": "none"},
}
#: Our scripts, and their bare commands.
PAIRS: Final[Mapping[str, tuple[Side, Side]]] = {
    name: (partial(scripts, **given), partial(commands, **given)) for name, given in _GIVEN.items()
}


def empty_call_us(handle: QueueHandle, calls: int) -> Callable[[], object]:
    """Calls that settle and claim nothing."""
    settings = ClaimSettings(TOKEN, worker=WORKER, control=handle.keys.control("x"), counters=handle.keys.counters("x"))

    def run() -> None:
        for _ in range(calls):
            work(handle, settings, None, 100)

    return run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=50_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--instructions", action="store_true", help="count instructions instead of the CPU time")
    args = parser.parse_args()

    def cost(side: Side) -> float:
        # Instructions are counted from the start of a server on.
        return instructions(side) - instructions(fill) if args.instructions else cpu_us(side, args.jobs)

    runs: dict[str, list[tuple[float, float]]] = {name: [] for name in PAIRS}
    empty: list[float] = []
    for _ in range(args.rounds):
        empty.append(instructions(empty_call_us) if args.instructions else cpu_us(empty_call_us, 5_000))
        for name, (ours, bare) in PAIRS.items():
            runs[name].append((cost(ours), cost(bare)))
    unit = "instructions" if args.instructions else "us"
    print(f"{'an empty call':40}{statistics.median(empty):12,.2f} {unit}")
    verdicts: list[Verdict] = []
    for name, found in runs.items():
        used, floor = (statistics.median(side) for side in zip(*found, strict=True))
        # Within a round, as the speed of the machine may change between rounds.
        ratio = statistics.median(ours / bare for ours, bare in found)
        print(f"{name:40}{used:12,.2f} {unit}{floor:12,.2f} bare{ratio:8.2f} x")
        if "events" not in name:
            verdicts.append(at_most(f"work, {name}, x bare commands", TARGET, ratio))
    show_verdicts(verdicts)
    report = {"unit": unit, "empty": empty, "runs": runs, "verdicts": [asdict(verdict) for verdict in verdicts]}
    write_results("floor_work", report)


if __name__ == "__main__":
    main()
