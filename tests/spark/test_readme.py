"""What the README prints runs as printed, but for the address of Redis."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from spark_bull.local import EmbeddedRedis
from tests.support.wait import PATIENCE_S

README = Path(__file__).parent.parent.parent / "README.md"
SHOWN_URL = "redis://localhost:6379"


def test_the_five_lines_run_as_printed(own_redis: Callable[..., EmbeddedRedis]) -> None:
    text = README.read_text(encoding="utf-8")
    snippet = re.search(r"<!-- runs: .*? -->\n```python\n(.*?)```", text, re.DOTALL)
    assert snippet is not None
    program = snippet[1].replace(SHOWN_URL, own_redis().url)
    ran = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    assert "ada@example.org" in ran.stdout
    assert ran.stdout.count("|wait ") == 2
