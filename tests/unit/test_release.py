"""`make release`: the version, the changelog, and a dry run of the whole."""

from __future__ import annotations

import subprocess
import sys
from datetime import date
from pathlib import Path

import pytest

from tools.release import ReleaseError, check_version, notes_of, released

ROOT = Path(__file__).parents[2]
CHANGELOG = """# Changelog

## [Unreleased]

To be released as 0.2.0.

### Added

- A verb.

## [0.1.0] - 2026-01-02

- The first one.
"""


def test_unreleased_changes_become_those_of_the_version() -> None:
    text = released(CHANGELOG, "0.2.0", date(2026, 3, 4))
    assert "## [Unreleased]\n\n## [0.2.0] - 2026-03-04\n\n### Added\n\n- A verb.\n\n## [0.1.0]" in text
    assert notes_of(text, "## [0.2.0]") == "### Added\n\n- A verb."
    assert notes_of(text, "## [Unreleased]") == ""


def test_a_release_without_changes_is_refused() -> None:
    with pytest.raises(ReleaseError, match="expected changes below"):
        released(released(CHANGELOG, "0.2.0", date(2026, 3, 4)), "0.3.0", date(2026, 3, 5))


@pytest.mark.parametrize("version", ["0.2", "v0.2.0", "next", "0.2.0-rc1"])
def test_a_version_that_is_no_number_is_refused(version: str) -> None:
    with pytest.raises(ReleaseError, match=r"expected a version such as 0.2.0"):
        check_version(version, ["v0.1.0"])


@pytest.mark.parametrize("version", ["0.1.0", "0.0.9", "0.2.0rc1", "0.1.9"])
def test_a_version_that_is_not_newer_than_all_tags_is_refused(version: str) -> None:
    with pytest.raises(ReleaseError, match=r"expected a version after 0\.2\.0, which has a tag"):
        check_version(version, ["v0.1.0", "v0.2.0", "v0.2.0rc1", "other"])


def test_a_newer_version_is_accepted() -> None:
    check_version("0.10.0", ["v0.9.0", "v0.10.0rc2"])
    check_version("0.1.0", [])


@pytest.mark.slow
def test_a_dry_run_builds_checks_and_changes_nothing() -> None:
    def git(*arguments: str) -> str:
        return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout

    before = git("rev-parse", "HEAD"), git("tag"), git("status", "--porcelain")
    done = subprocess.run(
        [sys.executable, "tools/release.py", "99.0.0", "--dry-run"], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.split() == [
        "dist/notes-99.0.0.md",
        "dist/spark_bull-99.0.0-py3-none-any.whl",
        "dist/spark_bull-99.0.0.tar.gz",
    ]
    assert (git("rev-parse", "HEAD"), git("tag"), git("status", "--porcelain")) == before


def test_a_release_that_cannot_be_made_ends_with_one_line() -> None:
    done = subprocess.run([sys.executable, "tools/release.py", "soon"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr == "expected a version such as 0.2.0 or 1.0.0rc1, got: soon\n"
