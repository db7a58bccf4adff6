"""The server of the tests that forks the Python processes of Spark."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.fork_server import VARIABLE
from tests.support.wait import PATIENCE_S, wait_until

PYTHON = Path(__file__).parents[2] / "support" / "spark_python.sh"
PROGRAM = """
import os, sys
print(os.getpid(), os.environ["COLOUR"], os.getcwd(), *sys.argv[1:], "pandas" in sys.modules, flush=True)
print(sys.stdin.readline(), end="", file=sys.stderr, flush=True)
sys.exit(int(sys.argv[1]))
"""

Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start(forked_python: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Start:
    """Starts a module as Spark does."""
    (tmp_path / "forked_program.py").write_text(PROGRAM)
    monkeypatch.setenv("COLOUR", "blue")

    def start(*arguments: str) -> subprocess.Popen[str]:
        command = [str(PYTHON), "-m", "forked_program", *arguments]
        pipe = subprocess.PIPE
        return subprocess.Popen(command, cwd=tmp_path, stdin=pipe, stdout=pipe, stderr=pipe, text=True)

    return start


def runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize("code", [0, 7])
def test_a_fork_has_the_arguments_files_and_status_of_its_client(start: Start, tmp_path: Path, code: int) -> None:
    with start(str(code), "more") as process:
        printed, errors = process.communicate("a line\n", timeout=PATIENCE_S)
    assert printed.split()[1:] == ["blue", str(tmp_path), str(code), "more", "True"]
    assert errors == "a line\n"
    assert process.returncode == code


def test_a_fork_ends_when_its_client_is_killed(start: Start) -> None:
    with start("0") as process:
        assert process.stdout
        pid = int(process.stdout.readline().split()[0])
        assert pid != process.pid
        process.kill()
    wait_until(lambda: not runs(pid), "the fork to end")


def test_a_client_that_ends_in_its_request_does_no_harm(start: Start, python_forks: Path) -> None:
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(python_forks))
        client.sendall(b'{"arguments": ')
    with start("3") as process:
        process.communicate("\n", timeout=PATIENCE_S)
    assert process.returncode == 3


def test_a_signal_that_ends_a_fork_is_shown_as_shells_do(start: Start) -> None:
    with start("0") as process:
        assert process.stdout
        os.kill(int(process.stdout.readline().split()[0]), signal.SIGKILL)
        assert process.wait(PATIENCE_S) == 128 + signal.SIGKILL


def test_without_a_server_python_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    command = [str(PYTHON), "-c", "import sys; print(sys.executable, 'pandas' in sys.modules)"]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    assert ran.stdout.rsplit(maxsplit=1) == [sys.executable, "False"]
