"""Every block of commands or JavaScript of README and docs runs as printed, alone; only the address of Redis and the
folders are replaced. Of commands that take long (all tests, starts of Spark), some are only parsed."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from configparser import ConfigParser
from contextlib import suppress
from pathlib import Path

import pytest

from spark_bull.cli.main import parser
from spark_bull.local import EmbeddedRedis
from tests.support.jvm import JVM_OPTIONS, LOG_OPTION
from tests.support.peers import NODE_DIRECTORY
from tests.support.readme import (
    ROOT,
    SHOWN_FOLDER,
    SHOWN_URL,
    Case,
    case_of,
    has_counts,
    is_done,
    missing_in,
    of,
    prepare,
)
from tests.support.snippets import Block
from tests.support.wait import PATIENCE_S, wait_until

#: The module that the block with `--py-files` sends to the executors.
MY_JOBS = """
def send(job):
    return {"sent": job.data["to"]}
"""
#: A script that runs until Ctrl-C.
ENDLESS = "jobs/work.py"
#: The file that spark-submit takes where only the wheel is installed.
SUBMIT_FILE = "$(spark-bull --submit-file)"


@pytest.fixture(scope="module")
def server() -> Iterator[EmbeddedRedis]:
    with EmbeddedRedis() as server:
        yield server


@of("js")
def test_a_block_of_javascript_runs_in_node(
    server: EmbeddedRedis, node_packages: None, tmp_path: Path, block: Block
) -> None:
    case, log = case_of(block), tmp_path / "log"
    prepare(case, server.url)
    program = block.text.replace("'bullmq'", "'bullmq-6.7.0'").replace("port: 6379", f"port: {server.port}")
    run_until(lambda: not missing_in(log.read_text(), case), ["node", "-e", program], log, NODE_DIRECTORY)


@of("sh")
@pytest.mark.usefixtures("forked_python")
def test_a_block_of_commands_runs_or_can_be_parsed(
    server: EmbeddedRedis, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, block: Block
) -> None:
    case = case_of(block)
    if case == Case():
        for line in block.text.splitlines():
            assert_can_be_parsed(shlex.split(line, comments=True))
        return
    monkeypatch.setenv("SPARK_BULL_URL", server.url)
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", f"{JVM_OPTIONS} {LOG_OPTION}")
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    prepare(case, server.url)
    folder, log = like_a_checkout(tmp_path), tmp_path / "log"
    text = block.text.replace(SHOWN_URL, server.url).replace(SHOWN_FOLDER, f"{folder}/")
    for part in text.splitlines() if ENDLESS in text else [text]:
        command = ["bash", "-e", "-c", part]
        if ENDLESS in part:
            run_until(lambda: has_counts(case, server.url), command, log, folder)
        else:
            with log.open("ab") as output:
                ran = subprocess.run(command, cwd=folder, stdout=output, stderr=output, timeout=PATIENCE_S, check=False)
            assert ran.returncode == 0, log.read_text()[-5000:]
    assert not (missing := missing_in(log.read_text(), case)), f"{missing} in:\n{log.read_text()[-5000:]}"
    assert is_done(case, server.url, folder)


def like_a_checkout(folder: Path) -> Path:
    """A folder with links to the files of this checkout, in which commands may write."""
    for name in ("Makefile", "jobs", "tools", "spark_bull", "pyspark_bull"):
        (folder / name).symlink_to(ROOT / name)
    (folder / "my_jobs.py").write_text(MY_JOBS)
    return folder


def run_until(done: Callable[[], bool], command: list[str], log: Path, folder: Path) -> None:
    """Runs a command that does not end by itself, and kills it and its children once `done` is true."""
    with log.open("ab") as output:
        running = subprocess.Popen(command, cwd=folder, stdout=output, stderr=output, start_new_session=True)
    try:
        wait_until(lambda: done() or running.poll() is not None, f"the effects of `{command[-1]}`")
        assert running.poll() is None, log.read_text()[-5000:]
    finally:
        with suppress(ProcessLookupError):
            os.killpg(running.pid, signal.SIGKILL)
        running.wait()


def assert_can_be_parsed(command: list[str]) -> None:
    """`make` has the target; `pip` installs this package, with extras that exist; the parser of `spark-bull` accepts
    the arguments, also those behind the script or the file of a spark-submit."""
    if command[:2] == ["pip", "install"]:
        name, extras = re.fullmatch(r"([\w-]+)(?:\[(.+)\])?", command[2]).groups()  # type: ignore[union-attr]
        declared = ConfigParser()
        declared.read(ROOT / "setup.cfg")
        assert name == declared["metadata"]["name"]
        assert set(extras.split(",") if extras else ()) <= set(declared["options.extras_require"])
        return
    if command[0] == "make":
        assert re.search(rf"^{command[1]}:.*## ", (ROOT / "Makefile").read_text(), re.MULTILINE)
        return
    if command[0] == "spark-bull":
        parser().parse_args(command[1:])
        return
    assert command[0] == "spark-submit"
    if SUBMIT_FILE in command:
        parser().parse_args(command[command.index(SUBMIT_FILE) + 1 :])
        return
    script = next(argument for argument in command if argument.startswith("jobs/"))
    assert (ROOT / script).is_file()
    parser().parse_args([Path(script).stem, *command[command.index(script) + 1 :]])
