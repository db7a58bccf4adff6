"""Every code block of the README runs as printed, each alone, but for the address of Redis and where files go."""

from __future__ import annotations

import importlib
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from spark_bull.bull_queue import BullQueue
from spark_bull.local import EmbeddedRedis
from spark_bull.model import NewJob
from spark_bull.spark.query_start import LATE, TRIES
from tests.conftest import need
from tests.support.finisher import Finisher
from tests.support.peers import NODE_DIRECTORY
from tests.support.snippets import Answer, Block, SnippetRunner, blocks
from tests.support.wait import wait_until

ROOT = Path(__file__).parents[2]
BLOCKS = blocks(ROOT / "README.md")
SHOWN_URL = "redis://localhost:6379"
#: What is drawn, and not run.
DRAWN = ("mermaid",)

pytestmark = [pytest.mark.soak, pytest.mark.timeout(600)]


@dataclass(frozen=True)
class Case:
    """What a block needs and does. `jobs`: payloads by queue, there before it runs. `finished`: that many jobs of the
    queue `mail` have completed, and as many failed, before. `then`: counts of queues by state that it brings about.
    `prints`: texts that it prints, spaces left out. `files`: a pattern of files that it writes."""

    jobs: Mapping[str, list[Any]] = field(default_factory=dict)
    finished: int = 0
    then: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    prints: tuple[str, ...] = ()
    files: str = ""


#: By a text that only this block has. A block that isn't here needs nothing, and ends by itself without an error.
CASES = {
    "jobs.select(": Case(then={"mail": {"wait": 2}}, prints=("ada@example.org", "alan@example.org", "|wait|")),
    '"jobColumns"': Case(then={"mail": {"delayed": 1}}),
    "INSERT INTO outbox": Case(then={"mail": {"wait": 2}}),
    "failed = spark.read": Case(finished=2, prints=("mail|bad|2", '{"n":0}', "mail|completed|2", "mail|failed|2")),
    "def send(job)": Case(
        jobs={"mail": [{"to": "ada@example.org"}, {"to": "nowhere"}]}, then={"mail": {"completed": 1, "failed": 1}}
    ),
    "def score(": Case(jobs={"flights": [{"distance": 500, "delay": 7}]}, then={"flights": {"completed": 1}}),
    "def enrich(": Case(jobs={"orders": [{"sku": "tea", "amount": 2}]}, then={"orders": {"completed": 1}}),
    '"mode", "claim"': Case(jobs={"mail": [{"n": 4}]}, then={"mail": {"completed": 1}}),
    "with Promoter(": Case(),
    "results = spark.readStream": Case(finished=3, files="results/queue=mail/day=*/*.parquet"),
    "queue = BullQueue(": Case(then={"mail": {"delayed": 1}}, prints=("'delayed': 1",)),
    "new Worker('mail'": Case(jobs={"mail": [{"to": "ada", "template": 1}]}, prints=("send1toada",)),
    "spark-bull counts": Case(
        jobs={"mail": [{"n": n} for n in range(42)]}, then={"mail": {"wait": 42}}, prints=("wait", '"id":"42"')
    ),
}


def of(*languages: str) -> Any:
    return pytest.mark.parametrize("block", [b for b in BLOCKS if b.language in languages], ids=str)


def case_of(block: Block) -> Case:
    return next((case for text, case in CASES.items() if text in block.text), Case())


@pytest.fixture(scope="module")
def server() -> Iterator[EmbeddedRedis]:
    with EmbeddedRedis() as server:
        yield server


@pytest.fixture(scope="module")
def runner(server: EmbeddedRedis, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SnippetRunner]:
    environment = {"SPARK_BULL_URL": server.url, "SPARK_CONF_DIR": str(ROOT / "conf"), "PYSPARK_PYTHON": sys.executable}
    runner = SnippetRunner(tmp_path_factory.mktemp("readme") / "log", environment)
    try:
        yield runner
    finally:
        runner.end()


@pytest.fixture
def queue(server: EmbeddedRedis) -> Callable[[str], BullQueue]:
    return lambda name: BullQueue(name, url=server.url, protocol="bullmq")


def prepare(case: Case, queue: Callable[[str], BullQueue], url: str) -> None:
    """An empty Redis, but for what the block needs."""
    with Redis.from_url(url) as client:
        client.flushall()
    for name, payloads in case.jobs.items():
        queue(name).add_many(NewJob(payload) for payload in payloads)
    if case.finished:
        with Redis.from_url(url) as client:
            finisher = Finisher(queue("mail"), client, twice=False)
            finisher.finish(case.finished)
            finisher.finish(case.finished, "failed")


def is_done(case: Case, queue: Callable[[str], BullQueue], folder: Path) -> bool:
    """Whether all has come about that the block is to bring about."""
    for name, states in case.then.items():
        counts = queue(name).counts()
        if any(counts[state] != jobs for state, jobs in states.items()):
            return False
    return not case.files or any(folder.glob(case.files))


def missing_in(printed: str, case: Case) -> list[str]:
    """What the block should have printed, but has not."""
    return [text for text in case.prints if text not in printed.replace(" ", "")]


def test_every_case_is_of_one_block() -> None:
    for text in CASES:
        assert sum(text in block.text for block in BLOCKS) == 1, text
    assert {block.language for block in BLOCKS} == {"python", "sql", "js", "sh", *DRAWN}


@of("python", "sql")
def test_a_block_of_python_or_sql_runs_alone(
    runner: SnippetRunner, server: EmbeddedRedis, queue: Callable[[str], BullQueue], tmp_path: Path, block: Block
) -> None:
    case = case_of(block)
    text = block.text.replace(SHOWN_URL, server.url).replace("/lake/", f"{tmp_path}/")
    endless = "await_termination()" in text
    for _ in range(TRIES):
        prepare(case, queue, server.url)
        answer = run(runner, block.language, text, lambda: is_done(case, queue, tmp_path), endless)
        if not is_late(answer):
            break
    assert answer.error == ("interrupted" if endless else None), answer.error
    assert not (missing := missing_in(answer.printed, case)), f"{missing} in:\n{answer.printed}"


def run(runner: SnippetRunner, language: str, text: str, done: Callable[[], bool], endless: bool) -> Answer:
    """Runs a block until it has ended, by Ctrl-C if it is endless, and has done what it is to do."""
    runs = runner.start(language, text)
    if endless:
        wait_until(lambda: done() or runs.over, "what the block does")
        runner.interrupt()
    answer = runs.answer()
    if not is_late(answer):
        wait_until(done, "what the block does")
    if endless:
        runner.end()
    else:
        runner.stop_queries()
    return answer


def is_late(answer: Answer) -> bool:
    """Whether the Python process of a streaming source has connected too late, on a busy machine."""
    return LATE in (answer.error or "")


@of("js")
def test_a_block_of_javascript_runs_in_node(
    server: EmbeddedRedis, queue: Callable[[str], BullQueue], tmp_path: Path, block: Block
) -> None:
    need((NODE_DIRECTORY / "node_modules").is_dir(), "needs the Node packages: run `npm ci` in tests/node")
    case = case_of(block)
    prepare(case, queue, server.url)
    program = block.text.replace("'bullmq'", "'bullmq-6.7.0'").replace("port: 6379", f"port: {server.port}")
    log = tmp_path / "log"
    with log.open("wb") as output:
        running = subprocess.Popen(["node", "-e", program], cwd=NODE_DIRECTORY, stdout=output, stderr=subprocess.STDOUT)
    try:
        wait_until(
            lambda: running.poll() is not None or not missing_in(log.read_text(), case),
            f"{case.prints} of Node",
        )
        assert running.poll() is None, log.read_text()
    finally:
        running.kill()
        running.wait()


@of("sh")
def test_a_block_of_commands_runs_or_is_understood(
    server: EmbeddedRedis, queue: Callable[[str], BullQueue], monkeypatch: pytest.MonkeyPatch, block: Block
) -> None:
    if "spark-bull" in block.text:
        assert_runs(block, server, queue)
        return
    for line in block.text.splitlines():
        command, *arguments = shlex.split(line, comments=True)
        if command == "make":
            assert re.search(rf"^{arguments[0]}:.*## ", (ROOT / "Makefile").read_text(), re.MULTILINE)
        else:
            # These run until Ctrl-C: test_jobs.py runs them.
            assert command == "spark-submit"
            assert_is_understood(arguments, monkeypatch)


def assert_runs(block: Block, server: EmbeddedRedis, queue: Callable[[str], BullQueue]) -> None:
    case = case_of(block)
    prepare(case, queue, server.url)
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    ran = subprocess.run(
        ["bash", "-e", "-c", block.text.replace(SHOWN_URL, server.url)],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        env=environment,
    )
    assert ran.returncode == 0, ran.stderr
    assert not (missing := missing_in(ran.stdout, case)), f"{missing} in:\n{ran.stdout}"
    assert is_done(case, queue, Path())


def assert_is_understood(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The script is there, and its parser takes what follows it."""
    script = next(argument for argument in arguments if argument.startswith("jobs/"))
    monkeypatch.syspath_prepend(str(ROOT / "jobs"))
    monkeypatch.setattr(sys, "argv", arguments[arguments.index(script) :])
    importlib.import_module(Path(script).stem).arguments()
