"""Code of the documentation: blocks of pages and notebooks, what they need, and their expected effects."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrameReader, DataFrameWriter
from pyspark.sql.streaming.readwriter import DataStreamReader, DataStreamWriter
from redis import Redis

from spark_bull.core.model.jobs import NewJob
from spark_bull.core.queue.bull_queue import BullQueue
from tests.support.work_bench import Finisher

#: The one form of a block: three backticks and a language, from the start of the line.
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """One block of a page: the page's name, the block's language and text, and the line where it begins."""

    page: str
    language: str
    text: str
    line: int

    def __str__(self) -> str:
        return f"{self.language} at line {self.line} of {self.page}"


def blocks(page: Path, root: Path) -> list[Block]:
    """The fenced blocks of a Markdown page; the name of the page is its path relative to `root`."""
    text, name = page.read_text(encoding="utf-8"), page.relative_to(root).as_posix()
    return [Block(name, found[1], found[2], text.count("\n", 0, found.start()) + 2) for found in BLOCK.finditer(text)]


ROOT = Path(__file__).parents[2]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
#: Its blocks run one after the other: test_quickstart.py.
QUICKSTART = ROOT / "docs" / "quickstart.md"
BLOCKS = [block for page in PAGES if page != QUICKSTART for block in blocks(page, ROOT)]
#: Texts of the blocks that tests replace: the address of Redis, and the folder of files.
SHOWN_URL = "redis://localhost:6379"
SHOWN_FOLDER = "/lake/"


@dataclass(frozen=True)
class Case:
    """What a block needs, and its expected effects. `jobs`: payloads by queue of jobs that exist before it runs.
    `finished`: of the queue `mail`, the number of completed jobs, and of failed ones, before it runs. `then`: expected
    counts by queue and state. `prints`: texts that it prints, without their spaces. `files`: a pattern of files that it
    writes. `caller`: Python that runs behind it, for one that only defines a function. `capability`: what not every
    PySpark can do."""

    jobs: Mapping[str, list[Any]] = field(default_factory=dict)
    finished: int = 0
    then: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    prints: str = ""
    files: str = ""
    caller: str = ""
    capability: str = ""


#: Commands that start a JVM.
JVM_STARTS = ("spark-sql ", "spark-shell ", "spark-pipelines ", "spark-submit ")
_STARTS_SPARK = "each command starts a JVM; test_local_cluster.py runs the scripts of jobs/, which call the programs"
#: The languages of blocks that run. The others show outputs and configurations, some of which test_docs_code.py and
#: test_readme_commands.py check.
RUN = ("python", "sql", "js", "sh")
#: Blocks in these languages that do not run, by a text of theirs: why. Instead, commands are parsed with their options.
NOT_RUN = {
    'pip install "spark-bull[spark,local]"': "installs this package from a registry",
    'pip install "spark-bull[web]"': "installs this package from a registry, and starts a server; test_web_api.py does",
    "spark-bull-payloads')": "needs a copy of docs/node; test_payloads_with_node.py runs a worker with it",
    "from airflow.triggers": "needs Airflow; test_airflow.py runs it there",
    "make release VERSION": "builds packages, and installs them from a registry",
    "make demo": "installs tools of the system, and runs all tests",
    "spark-bull collect --queue 'mail,reports-*'": _STARTS_SPARK,
    "spark-bull dispatch --input customers.parquet --queue mail --url": _STARTS_SPARK,
    'spark-bull report --queue "mail,invoice-*"': _STARTS_SPARK,
    "spark-bull work --queue urgent --queue mail": _STARTS_SPARK,
    "spark-bull work --queue reports": _STARTS_SPARK,
    'spark-submit --py-files my_jobs.py "$(spark-bull --submit-file)"': _STARTS_SPARK,
    "spark-bull work --local": "runs until it is interrupted; test_local_worker.py runs it",
    "spark-bull promote mail --guard": "runs until it is interrupted; test_promoter_rules.py runs guards",
    "--listen :9090": "listens on a fixed port; test_metrics_server.py listens on a free one",
    "spark-bull completion zsh": "writes into the home; test_cli_terminal.py runs the scripts in their shells",
    "spark-bull doctor mail 'report-*'": "finds problems of the machine, which are an error; test_doctor.py runs it",
    "spark-submit --master yarn": "needs a cluster that no test has",
    "spark-submit --master k8s:": "needs a cluster that no test has",
    "docker build --tag spark-bull .": "needs an engine; test_containers.py builds and runs the image",
    "docker compose --file": "needs images of a registry; test_containers.py runs what the file has",
    "kubectl apply": "needs a cluster that no test has; test_containers.py runs what the file has",
    "spark-bull reshard": "needs a queue with shards; test_shards.py runs it",
}
_CALL_BOOKS = """
orders = spark.range(3).selectExpr("concat('order-', id) AS order")
jobs = spark.createDataFrame([("order-1", "wait"), ("order-2", "completed")], "id STRING, state STRING")
results = spark.createDataFrame([("order-2",), ("order-2",)], "id STRING")
books(orders, jobs, results).show()
"""
_CALL_TESTS = """
from spark_bull import EmbeddedRedis

with EmbeddedRedis() as server:
    test_a_charge_is_tried_again(server)
    test_an_empty_charge_fails_at_once(server)
"""
#: The other blocks, by a text that only this block contains. One whose case is empty needs nothing, and ends by itself
#: without an error.
CASES = {
    # README
    '"alan@example.org", 2)], ["to"': Case(
        then={"mail": {"wait": 2}}, prints="ada@example.org alan@example.org |wait|"
    ),
    "console.log('send', job.data.template": Case(jobs={"mail": [{"to": "ada", "template": 1}]}, prints="send1toada"),
    '"to"]}  # stored as `returnvalue`; an exception': Case(
        then={"mail": {"completed": 1}}, prints="1completed,0failed"
    ),
    "archive.trigger": Case(finished=1, files="mail/*.parquet"),
    "--delay 1m": Case(then={"mail": {"delayed": 1}}, prints="delayed"),
    # docs
    'LocalWorker("greetings"': Case(then={"greetings": {"completed": 1}}, prints="{'greeting':'HelloAda'}"),
    "process_all(queue, charge)": Case(caller=_CALL_TESTS),
    '"events", "ends"': Case(then={"mail": {"completed": 2}}, prints="{'sent':'ada@example.org'}"),
    'jobs.groupBy("state").count().show()': Case(then={"mail": {"wait": 2}}, prints="|wait|2|"),
    "secrets.token_bytes(32)": Case(
        then={"letters": {"completed": 2}}, prints='|ada|{"sent":8}| |alan|{"sent":100000}|'
    ),
    "spark-bull sweep letters": Case(jobs={"letters": [{}]}, prints="deleted"),
    'options(queue="mail", view="metrics")': Case(then={"mail": {"completed": 1}}, prints="|completed|1|"),
    "queue.stats(window_ms=600_000)": Case(finished=2, prints="alljobs{'wait':0"),
    '"uniqueBy", "order,event"': Case(then={"mail": {"wait": 2}}, prints="|3|2|1|"),
    "debounce = {": Case(then={"mail": {"wait": 1, "delayed": 1}}, prints="1\n1\n71\n7\n"),
    "books.write.format": Case(then={"books": {"waiting-children": 2}, "pages": {"wait": 4}}, prints="|unprocessed|4|"),
    '"view", "flows"': Case(prints="depth|jobQueue|state|count"),
    'FlowJob({"book": 1}, "bind"': Case(then={"books": {"waiting-children": 1}, "pages": {"wait": 3}}, prints="33"),
    'with BullQueue("books") as books': Case(then={"books": {"wait": 1}, "pages": {"wait": 1}}, prints="1"),
    "def refresh(": Case(then={"pages": {"completed": 1, "wait": 0}}, prints="1completed"),
    '"jobId STRING, dependsOn ARRAY<STRING>"': Case(
        then={"steps": {"wait": 1, "waiting-children": 3}}, prints="|report|waiting-children| |load|wait|"
    ),
    '"sequenceBy", "customer"': Case(then={"orders": {"completed": 4}}, prints='{"customer":"ada","step":3}'),
    'queue="shop", shards=4': Case(
        then={"shop{1}": {"completed": 2}, "shop{2}": {"completed": 1}}, prints="|wait|3| 3completed"
    ),
    "parcels = ": Case(prints="|parcels{0}|3| |parcels{1}|3|"),
    '{"ConnectionError": 5': Case(then={"people": {"completed": 1, "failed": 1}}, prints="1completed,1failed,4retried"),
    '{"sum": of_week': Case(then={"sales": {"completed": 8}}, prints='{"week":12,"total":2800}'),
    '"jobColumns"': Case(then={"mail": {"delayed": 1}}, prints='|delayed|{"to":"ada@example.org","name":"Ada"}|'),
    "INSERT INTO outbox": Case(then={"mail": {"wait": 2}}),
    "def to_review(": Case(finished=2, then={"review": {"wait": 2}}, prints='|2|wait|{"n":'),
    'queue = BullQueue("mail", url=': Case(then={"mail": {"delayed": 1}}, prints="'delayed':1"),
    'failed = spark.read.format("bull").options': Case(
        finished=2, prints='mail|bad|2 {"n":0} mail|completed|2 mail|failed|2'
    ),
    "mended = failed.where": Case(finished=2, prints="changed|missing|locked|wrongState"),
    '"resultPath", "/lake/': Case(finished=2, then={"mail": {"wait": 2}}, files="retried/*.parquet", prints="done|2"),
    "queue.change_delay(job_id": Case(
        finished=2,
        then={"mail": {"wait": 2, "failed": 0}, "dead-letters": {"prioritized": 1}},
        prints="['done','done']",
    ),
    'queue.cancel_all("maintenance")': Case(jobs={"mail": [1]}, then={"mail": {"wait": 1}}, prints="0False00"),
    "/lake/sized/_checkpoint": Case(finished=2, files="sized/*.parquet"),
    "/lake/lag/_checkpoint": Case(finished=2, prints="backlog{'mail':0} |mail|failed|2|", capability="progress"),
    "/lake/events/_checkpoint": Case(finished=2, prints="|completed|2| |failed|2|", files="events/*.parquet"),
    "spark_bull.write_results(": Case(then={"mail": {"wait": 2}}, prints="|wait|2|"),
    "new Worker('translate', translate": Case(
        jobs={"translate": [{"text": "hello"}]}, then={"translate": {"completed": 1}}
    ),
    "spark_bull.call(questions": Case(then={"translate": {"completed": 0}}, prints="|1|HELLO|NULL| |GOODDAY|NULL|"),
    "bull_call(TABLE(questions)": Case(
        then={"translate": {"completed": 0}}, prints="|1|HELLO|NULL|", capability="table-function"
    ),
    "except WaitTimeout as error": Case(then={"mail": {"wait": 1}}, prints="toendwithin5s"),
    'publish("bounced"': Case(prints="[('bounced','7','{\"code\":550}')]"),
    "print(event.timestamp": Case(then={"mail": {"wait": 1}}, prints="waiting1None"),
    '"payloadSchema", "to STRING': Case(then={"mail": {"wait": 1}}, prints="1|ada@example.org|1| template:long"),
    '"payloadSchema", "template INT': Case(then={"mail": {"wait": 1}}, prints='"template":1}|'),
    "spark-sql -f": Case(then={"mail": {"wait": 2}}, prints="ada@example.org"),
    "spark-shell <": Case(then={"mail": {"wait": 2}}, prints="|1|wait|ada@example.org|"),
    "spark-pipelines run": Case(finished=2, then={"receipts": {"wait": 2}}, capability="pipelines"),
    "jobs_per_day, peak": Case(prints="servers:5,firstlimit:memory Redis:0.36cores,46.1GB,20.0MB/s executors:1"),
    "spark-bull job mail": Case(
        jobs={"mail": [{"n": n} for n in range(42)]}, then={"mail": {"wait": 42}}, prints='wait "id":"42"'
    ),
    "queue.retry(job.id)": Case(
        finished=2, then={"mail": {"wait": 2, "completed": 2, "failed": 0}}, prints="bad 0completedjobs"
    ),
    'UnrecoverableError("no address")': Case(
        then={"mail": {"completed": 1, "failed": 1}},
        prints='|1|completed|{"sent":true}|NULL| |2|failed|NULL|noaddress|',
    ),
    "def report(": Case(then={"reports": {"completed": 1}, "months": {"completed": 2}}, prints="21"),
    'remove_child_dependency("june")': Case(prints="False 0jobsremoved"),
    "def add_up(": Case(then={"sums": {"completed": 1}}, prints="1paused 3"),
    "def resize(": Case(
        then={"images": {"completed": 1, "failed": 1}, "publish": {"wait": 1}, "review": {"wait": 1}},
        prints='|review|wait|{"image":"b.gif"}| |publish|wait|{"image":"a.png"}|',
    ),
    "def measure(": Case(
        then={"images": {"completed": 2}, "publish": {"wait": 2}}, prints='|publish|wait|{"image":"a.png"}|'
    ),
    "def score(": Case(then={"flights": {"completed": 2}}, prints='{"distance":500,"delay":7}|0.7 }|0|'),
    "def greet(": Case(then={"mail": {"completed": 2}}, prints="2completed"),
    "def predict(": Case(then={"flights": {"completed": 2}}, prints="250.7 450.0"),
    "def sum_up(": Case(then={"orders": {"completed": 3}}, prints='|rate|1| |sum|3| |a|"a"|'),
    "def enrich(": Case(then={"orders": {"completed": 2}}, prints='{"price":2.5,"stock":10} {"price":7,"stock":3}'),
    "ConsoleMetricExporter(": Case(then={"mail": {"completed": 1}}, prints="'wait':1 1completed"),
    "ConsoleSpanExporter(": Case(then={"mail": {"completed": 1}}, prints="1completed"),
    '[("morning", ': Case(then={"reports": {"delayed": 1, "wait": 1}}, prints="|morning|summary| |sync|"),
    'upsert_scheduler("nightly"': Case(then={"reports": {"delayed": 1}}, prints="nightly03*** poll60000"),
    "spark-bull schedulers reports": Case(prints="weekly"),
    "def ship(": Case(then={"parcels": {"failed": 1, "completed": 1, "wait": 1}}, prints="2'NoneType'object"),
    "end.failed, end.reasons)": Case(then={"mail": {"completed": 2}}, prints="20{}"),
    "spark-bull wait mail --idle": Case(finished=2, prints="completed2"),
    "def follow_plan(": Case(
        then={"mails": {"wait": 1}, "plans": {"completed": 1, "delayed": 1}}, prints="[('load',{'user':'ada'})]"
    ),
    "current_trace()": Case(then={"mail": {"wait": 1}}),
    "def priced(": Case(then={"orders": {"completed": 2}}, prints="|completed|10| |completed|15|"),
    '"mode", "claim"': Case(then={"numbers": {"completed": 2}}, prints="|completed|40| |completed|60|"),
    'queues=["mail*"]):': Case(),
    'guard = Guard("mail"': Case(),
    '"pauseReason"': Case(jobs={"mail": [1]}, prints="|paused|pauseReason| |false|NULL|"),
    '"expireAfterMs"),': Case(then={"codes": {"prioritized": 2}}, prints="|prioritized|2|"),
    '"data STRING, priority STRING"': Case(
        then={"mail": {"prioritized": 2}}, prints="|1|prioritized|2| |2|prioritized|5|"
    ),
    "promoter.once().aged": Case(jobs={"mail": [{"n": 1}]}, then={"mail": {"wait": 1}}, prints="0"),
    '"thumbnails").option("maxLength", 100)': Case(then={"thumbnails": {"wait": 100}}, prints="|100|200|"),
    "SELECT 'ada' AS group, 100 AS max": Case(prints="|mail|ada|0|0|100|60000|10|false|NULL|"),
    "queue.set_group_limit(": Case(jobs={"mail": [{}]}, prints="['ada']"),
    "def call_tenant(": Case(
        then={"mail": {"completed": 1, "delayed": 1}}, prints='|delayed|{"to":"alan","tenant":"b","busy":true}|'
    ),
    "queue.set_limits(concurrency=20": Case(then={"mail": {"wait": 1}}, prints="concurrency=20,max=100"),
    "def total(": Case(then={"sums": {"completed": 3, "failed": 1}}, prints='|total|completed|{"total":5.0}|NULL|'),
    "async def call(": Case(then={"mail": {"completed": 2}}, prints="2completed,0failed"),
    "def other(": Case(
        then={"mail": {"completed": 1}, "urgent": {"completed": 1}},
        prints='|mail|send|{"sent":"ada@example.org"}| |urgent|ping|"ping"|',
    ),
    "def device(": Case(prints="['cpu']"),
    "def render(": Case(then={"reports": {"completed": 1}}, prints="1completed"),
    "def copy(": Case(then={"copies": {"completed": 1}}, prints="['page0','page1','page2']"),
    "spark-bull retry mail --all": Case(
        jobs={"mail": [{"to": "ada"} for _ in range(45)]}, then={"mail": {"wait": 43, "prioritized": 2}}
    ),
    "curl http": Case(jobs={"mail": [{"n": 1}]}, then={"mail": {"wait": 2}}, prints='{"jobs":[] "added":1'),
    '"action": "retry", "reason"': Case(finished=1, prints='{"id":"'),
    "results/_checkpoint": Case(
        finished=3, files="results/queue=mail/day=*/*.parquet", prints="|mail|completed|3| |mail|failed|3|"
    ),
    "F.max_by(": Case(finished=2, prints="|1|completed|1|NULL| |4|failed|NULL|bad|"),
    'groupBy("failedReason").count().orderBy(': Case(finished=2, prints="|bad|2|"),
    "events.on('added'": Case(
        jobs={"mail": [{"to": "ada"}]}, prints="added1 completed1{sent:'ada'} {wait:0,completed:1}"
    ),
    '"jobIdColumn", "order"': Case(then={"mail": {"wait": 100}}, prints="|wait|100|"),
    "def send_receipt(": Case(then={"mail": {"completed": 1}}, prints="1completed"),
    'start("/lake/receipts")': Case(finished=2, files="receipts/*.parquet", prints="|completed|2| |failed|2|"),
    "def replace_batch(": Case(finished=2, files="receipts/batch=0/*.parquet", prints="|0|completed|2|"),
    "def books(": Case(caller=_CALL_BOOKS, prints="|nojobyet|1|0| |wait|1|0| |table|1|1|"),
    "make zip": Case(
        jobs={"mail": [{"to": "ada@example.org"}]},
        then={"mail": {"completed": 1}},
        prints="dist/spark_bull.zip 1finishedjobsofmailwritten",
        files="results/queue=mail/day=*/*.parquet",
    ),
}


def of(*languages: str) -> Any:
    """Runs a test for each block of these languages that runs."""
    chosen = [b for b in BLOCKS if b.language in languages and not reason_not_to_run(b)]
    return pytest.mark.parametrize("block", [pytest.param(b, id=str(b), marks=_marks(b)) for b in chosen])


def give_address(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    """Lets reads and writes without an option `url` use this address, as if $SPARK_BULL_URL had been set for Spark."""
    monkeypatch.setenv("SPARK_BULL_URL", url)
    for side in (DataFrameReader, DataFrameWriter, DataStreamReader, DataStreamWriter):

        def format(self: Any, source: str, usual: Callable[..., Any] = side.format) -> Any:
            return usual(self, source).option("url", url) if source == "bull" else usual(self, source)

        monkeypatch.setattr(side, "format", format)


def case_of(block: Block) -> Case:
    return next(case for text, case in CASES.items() if text in block.text)


def _marks(block: Block) -> list[pytest.MarkDecorator]:
    name, starts_a_jvm = case_of(block).capability, any(command in block.text for command in JVM_STARTS)
    marks = [pytest.mark.capability(name)] if name else []
    return [*marks, pytest.mark.rest] if starts_a_jvm and block.language == "sh" else marks


def reason_not_to_run(block: Block) -> str:
    """Why a block does not run; "" if it does."""
    if block.language not in RUN:
        return "no code"
    return next((reason for text, reason in NOT_RUN.items() if text in block.text), "")


def prepare(case: Case, url: str) -> None:
    """Empties Redis, and adds the jobs that the block needs."""
    with Redis.from_url(url) as client:
        client.flushall()
        for name, payloads in case.jobs.items():
            with BullQueue(name, url=url, protocol="bullmq") as queue:
                queue.add_many(map(NewJob, payloads))
        if case.finished:
            with BullQueue("mail", url=url, protocol="bullmq") as queue:
                finisher = Finisher(queue, client, twice=False)
                finisher.finish(case.finished)
                finisher.finish(case.finished, "failed")


def is_done(case: Case, url: str, folder: Path) -> bool:
    """Whether the block has had all its expected effects."""
    return has_counts(case, url) and (not case.files or any(folder.glob(case.files)))


def has_counts(case: Case, url: str) -> bool:
    """Whether the queues have the expected numbers of jobs."""
    for name, states in case.then.items():
        with BullQueue(name, url=url, protocol="bullmq") as queue:
            counts = queue.counts()
        if any(counts[state] != jobs for state, jobs in states.items()):
            return False
    return True


def missing_in(printed: str, case: Case) -> list[str]:
    """The expected texts that were not printed."""
    return [text for text in case.prints.split(" ") if text not in printed.replace(" ", "")]


NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
#: The texts that each notebook prints, in this order: without their spaces, with a space between them.
PRINTED = {
    "01_dispatch_and_read": (
        '|mail|wait|900| |mail|delayed|100| |1|delayed|welcome|{"id":0,"name":"customer-0"}| '
        '|2|wait|welcome|{"id":1,"name":"customer-1"}|NULL| |100|20 600newslettersaredelayed '
        "|finished|1000|1000|NULL|NULL| |finished|10|10|nightly|1| "
        "1011{'wait':909,'active':0,'delayed':101,'prioritized':1"
    ),
    "02_workers_with_udfs": (
        "{'completed':1000} 10.52['priced7'] ['0','1']1000 {'completed':3,'failed':1} (-1, noroot "
        "{'completed':2,'failed':1} |1|completed|{\"converted\":0}|NULL| |2|completed|{\"converted\":11}|NULL| "
        "|3|failed|NULL|unknowncurrency| promoted=1"
    ),
    "03_talking_to_node": "Nodeisthere |completed|196|2611700| Idonotlike50 timesof200jobs",
    "04_dead_letter_queue": (
        "100completed,200failed |noaddress|100| |nosuchhost:exmaple.org|100| |finished|100|100|0|0|0| "
        "|finished|100|100|0|0|0| {'completed':200} 100waitforanaddress"
    ),
    "05_lakehouse": (
        "2processesofworkerswerekilled,6queries rowsin900 jobsadded900 outcomes900 rowsinthetable900 differentrows900"
    ),
}


def missing_in_notebook(path: Path, cells: Sequence[Mapping[str, Any]]) -> str:
    """The first expected text that these cells of a notebook have not printed, after those before it; "" if none."""
    printed = "".join(printed_by(cell) for cell in cells)
    place = 0
    for text in PRINTED[path.stem].split(" "):
        if text not in printed[place:]:
            return f"{text} is not in:\n{printed[place:]}"
        place = printed.index(text, place)
    return ""


def printed_by(cell: Mapping[str, Any]) -> str:
    outputs = [output.get("text") or output.get("data", {}).get("text/plain", "") for output in cell["outputs"]]
    return "".join("".join(text) for text in outputs).replace(" ", "")
