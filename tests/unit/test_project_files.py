"""The files by which hosts of repositories and tools of maintainers know the project."""

from __future__ import annotations

import re
from configparser import ConfigParser
from pathlib import Path

import pytest
import yaml

from tools.matrix import ENVIRONMENTS, OLDEST, STEPS, UNTRIED

ROOT = Path(__file__).parents[2]
YAML = [".github/workflows/ci.yml", ".pre-commit-config.yaml"]


@pytest.mark.parametrize("name", YAML)
def test_settings_are_valid_yaml(name: str) -> None:
    assert yaml.safe_load((ROOT / name).read_text())


def test_the_workflow_runs_the_checks_of_every_developer() -> None:
    [job] = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())["jobs"].values()
    assert {"run": ".ci/run"} in job["steps"]


def test_the_workflow_has_the_oldest_python_beside_that_of_the_job() -> None:
    [job] = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())["jobs"].values()
    [versions] = [step["with"]["python-version"] for step in job["steps"] if "setup-python" in step.get("uses", "")]
    assert versions.split() == [OLDEST.python, *["${{", "matrix.python", "}}"]]


def test_the_checks_before_a_commit_exist() -> None:
    [repository] = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    tests = re.findall(r"tests/\S+\.py", " ".join(hook["entry"] for hook in repository["hooks"]))
    assert tests
    assert all((ROOT / test).exists() for test in tests)


@pytest.mark.parametrize("name", ["fault", "wish"])
def test_templates_of_issues_have_a_name_and_a_sentence(name: str) -> None:
    _, head, body = (ROOT / f".github/ISSUE_TEMPLATE/{name}.md").read_text().split("---\n", 2)
    assert yaml.safe_load(head).keys() == {"name", "about"}
    assert body.strip()


def test_the_readme_has_a_row_for_each_environment_that_was_tried() -> None:
    text = (ROOT / "README.md").read_text("utf-8")
    shown = [line for line in text.splitlines() if re.match(r"\| \d\.\d \| ", line)]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in shown]
    tried = [one for one in ENVIRONMENTS if one is not UNTRIED]
    assert [(pyspark, python) for pyspark, python, *_ in rows] == [(one.pyspark, one.python) for one in tried]
    assert all(steps == ["works"] * len(STEPS) for _, _, _, *steps in rows)
    assert f"Python {UNTRIED.python} is untried" in " ".join(text.split())


def test_classifiers_name_each_python_that_was_tried() -> None:
    declared = ConfigParser()
    declared.read(ROOT / "setup.cfg")
    named = re.findall(r"Python :: (3\.\d+)$", declared["metadata"]["classifiers"], re.MULTILINE)
    assert set(named) == {one.python for one in ENVIRONMENTS if one is not UNTRIED}
