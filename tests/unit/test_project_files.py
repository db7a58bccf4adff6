"""The files by which hosts of repositories and tools of maintainers know the project."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
YAML = [".github/workflows/ci.yml", ".pre-commit-config.yaml"]


@pytest.mark.parametrize("name", YAML)
def test_settings_are_valid_yaml(name: str) -> None:
    assert yaml.safe_load((ROOT / name).read_text())


def test_the_workflow_runs_the_checks_of_every_developer() -> None:
    [job] = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())["jobs"].values()
    assert {"run": ".ci/run"} in job["steps"]


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
