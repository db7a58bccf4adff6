"""Every block of commands or JavaScript of README and docs runs as printed, alone; only the address of Redis and the
folders are replaced. Those that tests.support.examples.NOT_RUN names are parsed, or checked in another way."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from configparser import ConfigParser
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
from redis import Redis

from spark_bull.core.embedded import EmbeddedRedis
from spark_bull.core.options.parse import parse_options
from spark_bull.core.options.table import CollectOptions, ReadOptions, WorkOptions, WriteOptions
from spark_bull.ops.cli.main import parser
from spark_bull.ops.web.settings import READ_TOKEN_VARIABLE, WRITE_TOKEN_VARIABLE
from tests.support.examples import (
    BLOCKS,
    ROOT,
    SHOWN_FOLDER,
    SHOWN_URL,
    Block,
    case_of,
    has_counts,
    is_done,
    missing_in,
    of,
    prepare,
    reason_not_to_run,
)
from tests.support.node import NODE_DIRECTORY
from tests.support.redis_servers import rules
from tests.support.spark_submit import COMMAND, DRIVER_OPTIONS, LOG_OPTION
from tests.support.wait import PATIENCE_S, wait_until
from tests.support.web import WRITE_TOKEN, serving

#: The module that the block with `--py-files` sends to the executors.
MY_JOBS = """
def send(job):
    return {"sent": job.data["to"]}
"""
#: The shells of Spark would start a metastore with a database.
NO_HIVE = "-Dspark.sql.catalogImplementation=in-memory"
#: A script that runs until Ctrl-C.
ENDLESS = "jobs/work.py"
#: The file that spark-submit takes where only the wheel is installed, and the link to it in an image.
SUBMIT_FILES = {"$(spark-bull --submit-file)", "local:///opt/spark-bull.py"}
#: The address of `spark-bull serve`.
SHOWN_SITE = "http://127.0.0.1:8080"
#: The options of spark-submit on the pages; each has a value.
SUBMIT_OPTIONS = {"--py-files", "--master", "--deploy-mode", "--conf", "--packages", "--archives", "--properties-file"}
#: The options of the data source, or the arguments of a Worker, that a program takes as `--option`.
SCOPES = {"dispatch": WriteOptions, "work": WorkOptions, "collect": CollectOptions, "report": ReadOptions}


@pytest.fixture
def site() -> Iterator[ExitStack]:
    """Ends the server that a block asks."""
    with ExitStack() as started:
        yield started


@of("js")
def test_a_block_of_javascript_runs_in_node(
    server: EmbeddedRedis, node_packages: None, tmp_path: Path, block: Block
) -> None:
    case, log = case_of(block), tmp_path / "log"
    prepare(case, server.url)
    program = block.text.replace("'bullmq'", "'bullmq-6.7.0'").replace("port: 6379", f"port: {server.port}")
    run_until(lambda: not missing_in(log.read_text(), case), ["node", "-e", program], log, NODE_DIRECTORY)


def test_blocks_of_commands_that_do_not_run_can_be_parsed() -> None:
    for block in not_run("sh"):
        for line in block.text.replace("\\\n", " ").splitlines():
            assert_can_be_parsed(shlex.split(line, comments=True))


def test_a_command_of_redis_runs_with_the_rights_of_its_page(server: EmbeddedRedis) -> None:
    [block] = [one for one in not_run("text") if one.text.startswith("ACL")]
    command = re.sub(r"<.*>", rules(), block.text.rstrip())
    with Redis.from_url(server.url) as client:
        client.execute_command(*command.split())


def not_run(language: str) -> list[Block]:
    return [block for block in BLOCKS if block.language == language and reason_not_to_run(block)]


@of("sh")
@pytest.mark.usefixtures("forked_python")
def test_a_block_of_commands_runs(
    server: EmbeddedRedis, site: ExitStack, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, block: Block
) -> None:
    case = case_of(block)
    monkeypatch.setenv("SPARK_BULL_URL", server.url)
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", f"{DRIVER_OPTIONS} {NO_HIVE} {LOG_OPTION}")
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    # Otherwise the scripts of Spark look for it by a command without quotes.
    monkeypatch.setenv("SPARK_HOME", str(COMMAND.parents[1]))
    prepare(case, server.url)
    folder, log = like_a_checkout(tmp_path), tmp_path / "log"
    # Found as if it were installed: spark-pipelines changes the working directory.
    monkeypatch.setenv("PYTHONPATH", str(folder))
    text = block.text.replace(SHOWN_URL, server.url).replace(SHOWN_FOLDER, f"{folder}/")
    if SHOWN_SITE in text:
        monkeypatch.setenv("SPARK_BULL_WRITE_TOKEN", WRITE_TOKEN)
        web = site.enter_context(serving(url=server.url, read_token=None))
        text = text.replace(SHOWN_SITE, web.url)
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
    for name in ("Makefile", "LICENSE", "jobs", "tools", "spark_bull", "pyspark_bull"):
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
    """`make` has the target; `pip` installs this package, with extras that exist; variables are of this package;
    the parser of `spark-bull` accepts the arguments, also those in a container, and those behind the script or the file
    of a spark-submit, whose own options exist; files that `docker` and `kubectl` get are there."""
    if command[:2] == ["pip", "install"]:
        name, extras = re.fullmatch(r"([\w-]+)(?:\[(.+)\])?", command[2]).groups()
        declared = ConfigParser()
        declared.read(ROOT / "setup.cfg")
        assert name == declared["metadata"]["name"]
        assert set(extras.split(",") if extras else ()) <= set(declared["options.extras_require"])
    elif command[0] == "make":
        assert re.search(rf"^{command[1]}:.*## ", (ROOT / "Makefile").read_text(), re.MULTILINE)
    elif command[0] == "export":
        assert command[1].partition("=")[0] in (READ_TOKEN_VARIABLE, WRITE_TOKEN_VARIABLE)
    elif command[0] in ("docker", "kubectl"):
        files = {command[place + 1] for place, word in enumerate(command) if word in ("--file", "--filename")}
        assert all((ROOT / file).is_file() for file in files)
        if command[1] in ("run", "compose") and "spark-bull" in command:
            assert_is_accepted(command[command.index("spark-bull") + 1 :])
    elif command[0] == "spark-bull":
        assert_is_accepted(command[1 : command.index(">") if ">" in command else None])
    else:
        assert command[0] == "spark-submit"
        is_file = [argument in SUBMIT_FILES or argument.startswith("jobs/") for argument in command]
        file = is_file.index(True)
        assert set(command[1:file:2]) <= SUBMIT_OPTIONS
        if command[file] in SUBMIT_FILES:
            assert_is_accepted(command[file + 1 :])
        else:
            assert (ROOT / command[file]).is_file()
            assert_is_accepted([Path(command[file]).stem, *command[file + 1 :]])


def assert_is_accepted(arguments: list[str]) -> None:
    """The parser of `spark-bull` accepts the arguments, and so do the options that it passes on."""
    args = parser().parse_args(arguments)
    if arguments[0] in SCOPES:
        parse_options(dict(args.option), SCOPES[arguments[0]])
