"""Parts of the suite run again for BullMQ as a user with few rights: on a cluster, with Sentinels, on the oldest Redis.

`make soak` runs all of it, in all dialects.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import need
from tests.support.redis_servers import KINDS
from tools.servers import OLDEST, VARIABLE

FOLDER = Path(__file__).parent
FILES = (
    "test_add.py",
    "test_callbacks.py",
    "test_deduplication.py",
    "test_flow_writes.py",
    "test_flows.py",
    "test_follow_ups.py",
    "test_groups.py",
    "test_groups_own.py",
    "test_manage.py",
    "test_parents.py",
    "test_read.py",
    "test_results.py",
    "test_sequences.py",
    "test_term_writes.py",
    "test_terms.py",
    "test_work.py",
    "test_write_terms.py",
)
#: Behind a Sentinel, clients find the primary and then speak to it as to one server.
FEW = ("test_add.py", "test_flows.py", "test_results.py", "test_work.py")
#: Without tests that need many jobs, write invalid values, or need a prefix without a hash tag; of the others, see
#: conftest.py, each runs once.
SOME = "not any_mix and not clean and not large and not whatever and not cut_off and not in_one_slot"

#: With all values; the user has no right to the queue of one of them.
MORE = f"{SOME} and not queue_of_another_dialect"


@pytest.mark.rest
@pytest.mark.slow
@pytest.mark.timeout(1_200)
@pytest.mark.parametrize(
    ("kind", "names", "values"),
    [
        ("cluster", FILES, []),
        ("sentinel", FEW, []),
        ("oldest", FILES, []),
        *(pytest.param(kind, FILES, ["--each-value", "-k", MORE], marks=pytest.mark.soak) for kind in KINDS),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_suite_passes_with_few_rights_on_other_kinds_of_redis(
    kind: str, names: tuple[str, ...], values: list[str]
) -> None:
    environment = dict(os.environ)
    if kind == "oldest":
        need(OLDEST.executable.exists(), f"no {OLDEST.name}: run `make oldest`")
        environment |= {VARIABLE: str(OLDEST.executable), "SPARK_BULL_TEST_URL": ""}
    options = ["-q", "-x", "-p", "no:cacheprovider", "--redis", "acl" if kind == "oldest" else kind, "-k", SOME]
    command = [sys.executable, "-m", "pytest", *options, *values, *(str(FOLDER / name) for name in names)]
    run = subprocess.run(command, capture_output=True, text=True, check=False, cwd=FOLDER.parents[1], env=environment)
    assert run.returncode == 0, run.stdout[-5_000:] + run.stderr[-2_000:]
