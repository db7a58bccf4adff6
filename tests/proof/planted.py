"""Errors of one line, planted in a copy of the package, one at a time: the tests named with each must find it.

`make mutants` prints which of them were found; MUTANTS_ARGS="receipt" selects by text. It ends with 1 if one survived.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

ROOT: Final = Path(__file__).parents[2]
PACKAGE: Final = "spark_bull"
#: Exit statuses of pytest: all tests passed, some failed.
PASSED, FAILED = 0, 1


@dataclass(frozen=True)
class Planted:
    """error: what is wrong. file: below spark_bull/. text: stands in it once; instead: the error. tests: paths below
    tests/ that must find it.
    """

    error: str
    file: str
    text: str
    instead: str
    tests: tuple[str, ...]


ADD, WORK = "conformance/test_add.py", "conformance/test_work.py"
MANAGE, RESULTS = "conformance/test_manage.py", "conformance/test_results.py"
REGISTER, RESHARD, RECOVER = "faults/test_registration.py", "faults/test_reshard.py", "faults/test_recovery.py"

PLANTED: Final = [
    Planted(
        "a write does not count for a reshard",
        "lua/write/register.lua",
        "call('HINCRBY', entry.shard_layout, 'writes', 1)",
        "call('HEXISTS', entry.shard_layout, 'writes')",
        (RESHARD,),
    ),
    Planted(
        "a confirmed write does not count for a reshard",
        "lua/write/confirm.lua",
        "call('HINCRBY', key.shard_layout, 'writes', 1)",
        "call('HEXISTS', key.shard_layout, 'writes')",
        (RESHARD,),
    ),
    Planted(
        "a deduplication id with a period is free once its job is gone",
        "lua/bullmq/lib/deduplicator.lua",
        " or call('PTTL', holder) ~= -1",
        "",
        ("conformance/test_deduplication.py",),
    ),
    Planted(
        "a receipt lasts for 3.6 s",
        "queue/core/handle.py",
        "RECEIPT_TTL_MS: Final = 3_600_000",
        "RECEIPT_TTL_MS: Final = 3_600",
        (MANAGE, WORK),
    ),
    Planted(
        "the manifest of a confirmed write expires",
        "lua/write/confirm.lua",
        "call('PERSIST', key.manifest)",
        "",
        (REGISTER,),
    ),
    Planted(
        "an archive removes an entry too many",
        "lua/lib/archived.lua",
        "call('LTRIM', key.ledger, #entries, -1)",
        "call('LTRIM', key.ledger, #entries + 1, -1)",
        (RESULTS,),
    ),
    Planted(
        "a write that replaces the queue does not wait for older ones",
        "lua/lib/commit_once.lua",
        "    if ahead then",
        "    if false then",
        (RECOVER, ADD),
    ),
    Planted(
        "the list of finished writes never expires",
        "lua/lib/commit_once.lua",
        "  redis.call('PEXPIRE', key.finished_writes, arg.record_ttl_ms)",
        "",
        (ADD,),
    ),
    Planted(
        "the watermark of a confirmed write never expires",
        "lua/write/confirm.lua",
        "call('SET', key.watermark, arg.version, 'PX', arg.watermark_ttl_ms)",
        "call('SET', key.watermark, arg.version)",
        (REGISTER,),
    ),
    Planted(
        "of two prepared writes of one version both are added",
        "lua/write/open.lua",
        "    if is_superseded then",
        "    if false then",
        (REGISTER,),
    ),
    Planted(
        "a stage that lacks a chunk is registered",
        "lua/lib/registration_refusal.lua",
        "call('HLEN', stage.key) ~= stage.chunks",
        "call('EXISTS', stage.key) == 0",
        (ADD, REGISTER, RECOVER),
    ),
    Planted(
        "a cut beyond the end of a ledger moves its numbers",
        "lua/results/cut.lua",
        "math.min(tonumber(arg.position) - base, call('LLEN', key.ledger))",
        "tonumber(arg.position) - base",
        (RESULTS,),
    ),
    Planted(
        "one call promotes all jobs that are due",
        "lua/bullmq/lib/promote_due_jobs.lua",
        "(now + 1) * 4096 - 1, 'LIMIT', 0, limit)",
        "(now + 1) * 4096 - 1)",
        ("integration/test_promoter.py", WORK),
    ),
    Planted(
        "a claim takes more jobs than the rate limit has left",
        "lua/lib/start_limit.lua",
        "limit = math.min(limit, most - started)",
        "limit = math.min(limit, most)",
        (WORK,),
    ),
    Planted(
        "active jobs do not count for the concurrency of the queue",
        "lua/lib/start_limit.lua",
        "limit = math.min(limit, most_active - call('LLEN', key.active))",
        "limit = math.min(limit, most_active)",
        (WORK,),
    ),
    Planted(
        "two rescuers check the same period",
        "lua/lib/rescue_slices.lua",
        "call('SET', key.stalled_check, now, 'PX', arg.check_ms, 'NX')",
        "call('SET', key.stalled_check, now, 'PX', arg.check_ms)",
        (WORK,),
    ),
    Planted(
        "a job whose lock is extended stays marked as stalled",
        "lua/job/extend.lua",
        "call('SREM', key.stalled, unpack(ours))",
        "call('SCARD', key.stalled)",
        (WORK,),
    ),
    Planted(
        "the list of open writes expires once one was prepared",
        "lua/lib/list_open_write.lua",
        "  redis.call('PERSIST', open)",
        "",
        (REGISTER,),
    ),
    Planted(
        "a promoter sleeps beyond the time at which a job expires",
        "lua/lib/promote_due_once.lua",
        "      next_due = math.min(next_due or math.huge, next_expiry)",
        "      next_due = next_due",
        ("conformance/test_terms.py", "faults/test_expiry.py", "integration/test_promoter.py"),
    ),
    Planted(
        "a dead job counts as running in its group",
        "lua/lib/group_room.lua",
        "        call('ZREM', key.group_active, id)\n        count = count - 1",
        "        call('ZSCORE', key.group_active, id)",
        ("conformance/test_groups.py",),
    ),
    Planted(
        "the ended entries of sequences are never removed",
        "lua/bullmq/lib/sequencer.lua",
        "      forget_ended(tails, base, 2 * new)",
        "",
        ("conformance/test_sequences.py",),
    ),
    Planted(
        "the last jobs of sequences never expire",
        "lua/bullmq/lib/sequencer.lua",
        "      call('PEXPIRE', tails, TAILS_TTL_MS)",
        "",
        ("conformance/test_sequences.py", ADD),
    ),
    Planted(
        "a parent with a delay is released at once",
        "lua/bullmq/lib/release_parent.lua",
        "  if delay > 0 then",
        "  if false then",
        ("interop/test_flows_with_node.py",),
    ),
    Planted(
        "a slice of a list at its old end removes the newest jobs",
        "lua/lib/sweep.lua",
        "redis.call('LTRIM', state, 0, -#gone - 1)",
        "redis.call('LTRIM', state, #gone, -1)",
        (MANAGE,),
    ),
    Planted(
        "the first retry of Bull waits for two delays",
        "dialects/backoff.py",
        "(2**attempts_made - 1) * delay",
        "(2**attempts_made) * delay",
        ("unit/worker/job/test_outcome_policy.py",),
    ),
    Planted(
        "a rule for an error without retries is ignored",
        "worker/job/outcome_policy.py",
        " or attempts == 0",
        "",
        ("unit/worker", "conformance/test_work.py", "conformance/test_processors.py"),
    ),
]


@contextmanager
def copied() -> Iterator[Path]:
    """A copy of the checkout that shares its environments."""
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, check=True)
    with TemporaryDirectory() as folder:
        copy = Path(folder) / "copy"
        for name in listed.stdout.decode().splitlines():
            if (ROOT / name).is_file():
                (copy / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, copy / name)
        for shared in (".venv", "tests/node/node_modules"):
            (copy / shared).symlink_to(ROOT / shared)
        yield copy


def survivors(chosen: list[Planted]) -> Iterator[Planted]:
    """Yields the errors that no test has found; prints each error with the time of its tests."""
    with copied() as copy:
        for one in chosen:
            file = copy / PACKAGE / one.file
            text = file.read_text("utf-8")
            assert text.count(one.text) == 1, f"expected {one.text!r} once in {one.file}: change the planted error"
            file.write_text(text.replace(one.text, one.instead), "utf-8")
            status = run_tests(copy, one.tests)
            file.write_text(text, "utf-8")
            print(f"{'found' if status == FAILED else 'SURVIVED'}  {one.error}", flush=True)
            if status == PASSED:
                yield one
            elif status != FAILED:
                raise SystemExit(f"expected pytest to run {one.tests}, it ended with {status}")


def run_tests(copy: Path, tests: tuple[str, ...]) -> int:
    """Runs tests up to the first failure; returns the exit status of pytest."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *(f"tests/{one}" for one in tests)]
    environment = os.environ | {"PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(command, cwd=copy, env=environment, stdout=subprocess.DEVNULL, check=False).returncode


if __name__ == "__main__":
    wanted = " ".join(sys.argv[1:])
    left = [*survivors([one for one in PLANTED if wanted in one.error])]
    raise SystemExit(f"{len(left)} of {len(PLANTED)} planted errors survived" if left else None)
