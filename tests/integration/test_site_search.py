"""The search of the built site finds what users look for where they expect it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
#: The first place that is found.
EXPECTED = {
    "jobId": "howto/deduplication/",
    "worker does nothing": "troubleshooting/#my-worker-does-nothing",
    "dead letter": "troubleshooting/#jobs-fail-dead-letters",
    "stuck": "troubleshooting/",
    "retry": "howto/retries/",
    "newest row": "howto/collect/#the-newest-row-per-job",
    "bull-board 9": "howto/node/#bull-board-9",
    "prometheus": "howto/monitor/#prometheus",
}


@pytest.mark.rest
@pytest.mark.usefixtures("node_packages")
def test_the_search_finds_what_users_look_for(tmp_path: Path) -> None:
    built = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", str(tmp_path)]
    subprocess.run(built, cwd=ROOT, check=True)
    search = ["node", str(ROOT / "tests" / "node" / "search_site.js"), str(tmp_path), *EXPECTED]
    found = json.loads(subprocess.run(search, capture_output=True, check=True).stdout)
    assert {query: places[0] for query, places in zip(EXPECTED, found, strict=True)} == EXPECTED
