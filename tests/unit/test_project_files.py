"""The files by which hosts, maintainers and `make release` know the project, and the environments of `make matrix`."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from configparser import ConfigParser
from datetime import date
from pathlib import Path

import pytest
import yaml
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from tools.matrix import ENVIRONMENTS, OLDEST, STEPS, UNTRIED
from tools.release import (
    CONSTRAINTS,
    EXTRAS,
    VENDORED,
    ReleaseError,
    check_version,
    libraries_of_page,
    notes_of,
    released,
)
from tools.servers import SERVERS

ROOT = Path(__file__).parents[2]
DECLARED = ConfigParser()
DECLARED.read(ROOT / "setup.cfg")


def test_the_workflow_runs_the_checks_of_every_developer_with_the_oldest_python_too() -> None:
    [job] = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())["jobs"].values()
    assert {"run": ".ci/run"} in job["steps"]
    [versions] = [step["with"]["python-version"] for step in job["steps"] if "setup-python" in step.get("uses", "")]
    assert versions.split() == [OLDEST.python, *["${{", "matrix.python", "}}"]]


def test_the_readme_has_a_row_for_each_environment_that_was_tried() -> None:
    text = (ROOT / "README.md").read_text("utf-8")
    shown = [line for line in text.splitlines() if re.match(r"\| \d\.\d \| ", line)]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in shown]
    tried = [one for one in ENVIRONMENTS if one is not UNTRIED]
    assert [(pyspark, python) for pyspark, python, *_ in rows] == [(one.pyspark, one.python) for one in tried]
    assert all(steps == ["works"] * len(STEPS) for _, _, _, *steps in rows)
    assert f"Python {UNTRIED.python} and macOS are untried" in " ".join(text.split())


def test_the_table_of_servers_has_a_row_for_each_and_no_failure() -> None:
    text = (ROOT / "docs" / "concepts" / "dialects.md").read_text("utf-8")
    rows = re.findall(r"^\| ((?:Redis|Valkey) \d\.\d)\.\d+ \| (\S+) \| [\d,]+ \| (\d+) \|", text, re.MULTILINE)
    assert rows == [(server.name, server.package, "0") for server in SERVERS]


def test_classifiers_name_each_python_that_was_tried() -> None:
    named = re.findall(r"Python :: (3\.\d+)$", DECLARED["metadata"]["classifiers"], re.MULTILINE)
    assert set(named) == {one.python for one in ENVIRONMENTS if one is not UNTRIED}


def test_all_that_the_extras_need_has_a_version_in_the_constraints() -> None:
    extras = [DECLARED["options.extras_require"][extra] for extra in EXTRAS.split(",")]
    needed = re.findall(r"^([\w-]+)", "\n".join([DECLARED["options"]["install_requires"], *extras]), re.MULTILINE)
    pinned = re.findall(r"^([\w-]+)==", (ROOT / CONSTRAINTS).read_text(), re.MULTILINE)
    assert {*needed} <= {*pinned}, "run: make constraints"
    assert {*EXTRAS.split(",")} == {*DECLARED["options.extras_require"]} - {"demo", "test", "docs"}


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


def test_a_release_has_the_changes_of_its_candidate() -> None:
    candidate = released(CHANGELOG, "0.2.0rc1", date(2026, 3, 4))
    text = released(candidate, "0.2.0", date(2026, 3, 5))
    notes = [notes_of(text, f"## [{version}]") for version in ("0.2.0", "0.2.0rc1", "Unreleased")]
    assert notes == ["### Added\n\n- A verb.", "### Added\n\n- A verb.", ""]


def test_a_release_without_changes_is_refused() -> None:
    with pytest.raises(ReleaseError, match="expected changes below"):
        released("# Changelog\n\n## [Unreleased]\n\nTo be released as 0.2.0.\n", "0.2.0", date(2026, 3, 4))
    with pytest.raises(ReleaseError, match="expected changes below"):
        released(released(CHANGELOG, "0.2.0", date(2026, 3, 4)), "0.3.0", date(2026, 3, 5))


def test_a_version_that_is_no_number_or_not_newer_than_all_tags_is_refused() -> None:
    for version in ("0.2", "v0.2.0", "next", "0.2.0-rc1"):
        with pytest.raises(ReleaseError, match=r"expected a version such as 0.2.0"):
            check_version(version, ["v0.1.0"])
    for version in ("0.1.0", "0.2.0rc1", "0.1.9"):
        with pytest.raises(ReleaseError, match=r"expected a version after 0\.2\.0, which has a tag"):
            check_version(version, ["v0.1.0", "v0.2.0", "v0.2.0rc1", "other"])
    check_version("0.10.0", ["v0.9.0", "v0.10.0rc2"])
    check_version("0.1.0", [])


def test_the_list_of_components_has_each_library_of_the_page() -> None:
    found = libraries_of_page((ROOT / VENDORED).read_text())
    valid = {"bomFormat": "CycloneDX", "specVersion": "1.6", "version": 1, "components": found}
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(json.dumps(valid)) is None
    files = {path.name.partition(".")[0].lower() for path in (ROOT / VENDORED).parent.glob("*.js")}
    assert {one["name"] for one in found} == files
    assert "pkg:npm/uplot@1.6.32" in {one["purl"] for one in found}


def test_a_release_of_another_branch_is_refused(tmp_path: Path) -> None:
    subprocess.run(["git", "clone", "-q", "--shared", ROOT, tmp_path / "copy"], check=True)
    subprocess.run(["git", "switch", "-q", "--detach"], cwd=tmp_path / "copy", check=True)
    command = [sys.executable, "tools/release.py", "99.0.0"]
    done = subprocess.run(command, cwd=tmp_path / "copy", capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "expected the branch main, got: none; run: git switch main\n")


@pytest.mark.rest
def test_a_dry_run_builds_checks_and_changes_nothing() -> None:
    """It also builds twice, and compares. What it leaves out, the tests of the extras and of the quickstart show."""

    def git(*arguments: str) -> str:
        return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout

    before = git("rev-parse", "HEAD"), git("tag"), git("status", "--porcelain")
    command = [sys.executable, "tools/release.py", "99.0.0", "--dry-run", "--untried"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert [line.partition(":")[0] for line in done.stdout.splitlines()] == [
        "dist/SHA256SUMS",
        "dist/constraints-99.0.0.txt",
        "dist/notes-99.0.0.md",
        "dist/spark_bull-99.0.0-py3-none-any.whl",
        "dist/spark_bull-99.0.0.tar.gz",
        "dist/spark_bull-99.0.0.zip",
        "dist/spark_bull-docs-99.0.0.zip",
    ]
    assert (git("rev-parse", "HEAD"), git("tag"), git("status", "--porcelain")) == before
