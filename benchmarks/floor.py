"""Benchmark of what Redis does for a job of a write, beside the bare commands that the job needs.

    .venv/bin/python -m benchmarks.floor --rounds 5
    .venv/bin/python -m benchmarks.floor --instructions     # counted by valgrind, whatever else runs

One client without Spark stages and commits jobs of 200 bytes on fresh servers, in turns with a script of the bare
commands. Prints medians and writes them to benchmarks/results/floor.json. See benchmarks/README.md.
"""

from __future__ import annotations

import argparse
import re
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from benchmarks.calls import CHUNK, PAYLOAD, add_staged, chunks_of, stage
from benchmarks.filling import queue_at
from benchmarks.probes import cpu_of_process
from benchmarks.report import Verdict, at_most, show_verdicts, write_results
from benchmarks.stock import stock_redis, stock_server
from spark_bull.core.options.parts import ALL_EVENTS
from spark_bull.core.queue.dispatch.add import add_chunk
from spark_bull.core.queue.handle.handle import QueueHandle

#: The commands that BullMQ's format demands for the jobs of a chunk, and nothing else. ARGV: the chunk, the beginning
#: of keys, the number before the first id, the time, and whether there are events.
COMMANDS: Final = """
local call, base, events = redis.call, ARGV[2], ARGV[2] .. 'events'
local chunk, counter, now, has_events, ids = cmsgpack.unpack(ARGV[1]), tonumber(ARGV[3]), ARGV[4], ARGV[5] == '1', {}
local datas, name, opts = chunk.data, chunk.name, chunk.opts
for i = 1, chunk.n do
  local id = string.format('%d', counter + i)
  call('HSET', base .. id, 'name', name, 'data', datas[i], 'opts', opts, 'timestamp', now,
    'delay', '0', 'priority', '0')
  if has_events then
    call('XADD', events, '*', 'event', 'added', 'jobId', id, 'name', name)
    call('XADD', events, '*', 'event', 'waiting', 'jobId', id)
  end
  ids[i] = id
end
call('LPUSH', base .. 'wait', unpack(ids))
call('XTRIM', events, 'MAXLEN', '~', 10000)
"""
#: The most that the scripts of a write, and the whole write, may take, x the bare commands.
SCRIPT_TARGET, WRITE_TARGET = 1.11, 1.28
#: Jobs of the two runs of which instructions are the difference.
FEW, MANY = 8 * CHUNK, 32 * CHUNK
_INSTRUCTIONS: Final = re.compile(r"^(?:==\d+== )?I +refs: +([\d,]+)$", re.MULTILINE)

#: Adds jobs; returns the step that is measured.
Side = Callable[[QueueHandle, int], Callable[[], object]]


def commands(handle: QueueHandle, jobs: int, *, with_events: bool = True) -> Callable[[], object]:
    chunks = list(chunks_of(handle, jobs, PAYLOAD))

    def run() -> None:
        for number, chunk in enumerate(chunks):
            now = time.time_ns() // 1_000_000
            args = (chunk.packed, handle.keys.base, number * CHUNK, now, int(with_events))
            handle.connection.call("EVAL", COMMANDS, 0, *args)

    return run


def commit(handle: QueueHandle, jobs: int, *, events: str = ALL_EVENTS) -> Callable[[], object]:
    stage(handle, jobs, events=events)
    return lambda: add_staged(handle, jobs)


def write(handle: QueueHandle, jobs: int) -> Callable[[], object]:
    def run() -> None:
        stage(handle, jobs)
        add_staged(handle, jobs)

    return run


def add(handle: QueueHandle, jobs: int) -> Callable[[], object]:
    chunks = list(chunks_of(handle, jobs, PAYLOAD))

    def run() -> None:
        for number, chunk in enumerate(chunks):
            add_chunk(handle, "floor", number, chunk.rows, chunk.packed, want_ids=False)

    return run


FLOOR: Final = "bare commands"
WITHOUT_EVENTS: Final = "bare commands without events"
#: The sides, and with which of them each is compared.
SIDES: Final[Mapping[str, tuple[Side, str]]] = {
    FLOOR: (commands, FLOOR),
    "exactly once, commit": (commit, FLOOR),
    "exactly once, staged and committed": (write, FLOOR),
    "at least once": (add, FLOOR),
    WITHOUT_EVENTS: (lambda handle, jobs: commands(handle, jobs, with_events=False), WITHOUT_EVENTS),
    "exactly once, commit, events=ends": (lambda handle, jobs: commit(handle, jobs, events="ends"), WITHOUT_EVENTS),
}
TARGETS: Final = {
    "exactly once, commit": SCRIPT_TARGET,
    "at least once": SCRIPT_TARGET,
    "exactly once, staged and committed": WRITE_TARGET,
}


def cpu_us(side: Side, jobs: int) -> float:
    """Redis' CPU time per job, µs."""
    with stock_redis() as server, queue_at(server.url) as queue:
        run = side(queue.handle, jobs)
        before = cpu_of_process(server.pid)
        run()
        return (cpu_of_process(server.pid) - before) / jobs * 1e6


def instructions(side: Side) -> float:
    """Redis' instructions per job: the difference of a run with many jobs and one with few."""
    few, many = (_instructions_of(side, jobs) for jobs in (FEW, MANY))
    return (many - few) / (MANY - FEW)


def _instructions_of(side: Side, jobs: int) -> int:
    """The instructions of a server, from its start to its end."""
    with TemporaryDirectory() as folder:
        log, program = Path(folder, "log"), Path(folder, "redis-server")
        counting = f"valgrind --tool=cachegrind --cache-sim=no --cachegrind-out-file=/dev/null --log-file={log}"
        program.write_text(f'#!/bin/sh\nexec {counting} {stock_server()} "$@"\n')
        program.chmod(0o755)
        with stock_redis(executable=str(program)) as server, queue_at(server.url) as queue:
            side(queue.handle, jobs)()
        found = _INSTRUCTIONS.search(log.read_text())
        assert found, f"expected the instructions in the log of valgrind, got: {log.read_text()}"
        return int(found[1].replace(",", ""))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--instructions", action="store_true", help="count instructions instead of the CPU time")
    args = parser.parse_args()

    runs: dict[str, list[float]] = {name: [] for name in SIDES}
    for _ in range(args.rounds):
        for name, (side, _) in SIDES.items():
            runs[name].append(instructions(side) if args.instructions else cpu_us(side, args.jobs))
    found = {name: statistics.median(of_side) for name, of_side in runs.items()}
    unit = "instructions" if args.instructions else "us"
    verdicts: list[Verdict] = []
    for name, (_, other) in SIDES.items():
        ratio = found[name] / found[other]
        print(f"{name:40}{found[name]:12,.2f} {unit}{ratio:8.2f} x")
        if name in TARGETS:
            verdicts.append(at_most(f"{name}, x {other}", TARGETS[name], ratio))
    show_verdicts(verdicts)
    write_results("floor", {"unit": unit, "runs": runs, "verdicts": [asdict(verdict) for verdict in verdicts]})


if __name__ == "__main__":
    main()
