"""tools/ensure-tools.sh: its functions, sourced, with functions that describe the machine replaced."""

from __future__ import annotations

import subprocess
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "tools" / "ensure-tools.sh"

# A machine with apt but without Java and Node; installing only prints.
BARE_MACHINE = """
version_of_python() { echo 3.11.2; }
version_of_java() { :; }
version_of_node() { :; }
has_apt() { true; }
package_exists() { [[ $1 == openjdk-21-jre-headless ]]; }
update_package_lists() { echo updated; }
install_packages() { echo "installed $*"; }
"""


def bash(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-c", f'source "{SCRIPT}"\n{code}'], capture_output=True, text=True, stdin=subprocess.DEVNULL
    )


def test_the_version_in_the_output_of_a_tool_is_compared_part_by_part() -> None:
    for output, least, is_enough in (
        ('openjdk version "17.0.15" 2025-04-15', "17", True),
        ('openjdk version "21" 2023-09-19', "21", True),
        ('java version "1.8.0_392"', "17", False),
        ("v20.20.2", "20.20.2", True),
        ("v8.1.0", "18", False),
        ("Python 3.14.0rc2", "3.14.0", True),
        ("Python 3.9.2", "3.10", False),
    ):
        done = bash(f"version_at_least $(parse_version '{output}') {least}")
        assert (done.returncode, done.stderr) == (0 if is_enough else 1, ""), output


def test_a_complete_machine_is_left_alone() -> None:
    complete = BARE_MACHINE + "version_of_java() { echo 17.0.15; }\nversion_of_node() { echo 20.1.0; }\n"
    done = bash(complete + "main")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert bash(BARE_MACHINE + "main python").returncode == 0, "only the named tools are checked"


def test_root_installs_what_is_missing_and_checks_again() -> None:
    there_once_installed = """
    is_root() { true; }
    install_packages() {
      echo "installed $*"
      version_of_java() { echo 21.0.4; }
      version_of_node() { echo 18.20.4; }
    }
    """
    done = bash(BARE_MACHINE + there_once_installed + "main python java node")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["updated", "installed openjdk-21-jre-headless nodejs npm"]


def test_without_root_the_command_to_run_is_printed() -> None:
    done = bash(BARE_MACHINE + "is_root() { false; }\nmain")
    assert (done.returncode, done.stdout) == (1, "")
    assert "expected java 17 or newer, got: none" in done.stderr
    command = "sudo apt-get update && sudo apt-get install -y openjdk-21-jre-headless nodejs npm"
    assert done.stderr.splitlines()[-1] == f"Run: {command}"
    without_apt = bash(BARE_MACHINE + "has_apt() { false; }\nmain java")
    assert without_apt.returncode == 1
    assert "expected java 17 or newer" in without_apt.stderr
    assert "package manager" in without_apt.stderr


def test_an_unknown_tool_is_refused() -> None:
    done = bash("main ruby")
    assert done.returncode == 2
    assert "got: ruby" in done.stderr


def test_a_python_that_cannot_make_environments_does_not_count(tmp_path: Path) -> None:
    half = tmp_path / "python3"
    half.write_text('#!/bin/sh\n[ "$1" = -c ] && exit 1\necho Python 3.12.1\n')
    half.chmod(0o755)
    assert bash(f'PYTHON="{half}" version_of_python').stdout == ""
