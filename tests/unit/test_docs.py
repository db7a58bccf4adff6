"""docs/, README and generated tables agree with the code; test_docs_code.py checks their code."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import spark_bull
from spark_bull.core import errors
from spark_bull.core.model.job_json import camel_case
from spark_bull.core.options.parts import VIEWS, in_snake_case, options_in
from spark_bull.core.options.table import SCOPES, CollectOptions, LimitsOptions, WriteOptions
from spark_bull.ops.cli.commands import all_commands
from spark_bull.run import testing
from spark_bull.spark.schemas import CLAIM_SCHEMA, SCHEMAS
from tools.reference_pages import PAGES, of, shared, with_tables

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
#: The beginnings of Spark's messages in docs/reference/messages.md.
OF_SPARK = ("[", "Python worker failed to connect back", "requirement failed: ")


def text_of(page: str) -> str:
    return (DOCS / page).read_text("utf-8")


def test_documented_schemas_have_the_columns_of_the_code_in_order() -> None:
    page = text_of("reference/schemas.md")
    for title, schema in {**SCHEMAS, "claimed jobs": CLAIM_SCHEMA}.items():
        text = page.partition(f"\n## {title}\n")[2].partition("\n## ")[0]
        listed = re.findall(r"^\| `(\w+)` \| `?([\w<>,]+)`? \|", text, re.MULTILINE)
        assert listed == [(field.name, field.dataType.simpleString().upper()) for field in schema]


def test_the_glossary_has_one_meaning_per_term_and_all_views() -> None:
    meanings = re.findall(r"^\| ([^|]+) \| (.+) \|$", text_of("glossary.md"), re.MULTILINE)[1:]
    terms = [term for term, _ in meanings]
    assert terms == sorted(set(terms), key=str.lower)
    assert tuple(re.findall("`(.+?)`", dict(meanings)["view"])) == VIEWS


def test_every_error_is_documented() -> None:
    page = text_of("reference/errors.md")
    ours = [name for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, Exception)]
    assert [name for name in ours if not re.search(rf"^\| `{name}\b", page, re.MULTILINE)] == []


def test_every_public_name_has_a_page_of_the_api_that_the_table_names() -> None:
    described = {name for page in DOCS.glob("reference/api/*.md") for name in names_on(page)}
    raised = {name for name, kind in vars(errors).items() if isinstance(kind, type)}
    assert described == {*spark_bull.__all__, *testing.__all__} - raised - {"__version__"}
    table = re.findall(r"^\| \[[^]]+\]\(([\w-]+\.md)\) \| (.+?) \|", text_of("reference/api/index.md"), re.MULTILINE)
    for page, names in table:
        assert set(re.findall(r"`(\w+)`", names)) == set(names_on(DOCS / "reference" / "api" / page))


def names_on(page: Path) -> list[str]:
    return re.findall(r"^::: spark_bull\.(?:run\.testing\.)?(\w+)$", page.read_text("utf-8"), re.MULTILINE)


def test_the_alerts_on_the_page_are_those_of_the_rules() -> None:
    named = re.findall(r"^\| `(Bull\w+)` \|", text_of("howto/monitor.md"), re.MULTILINE)
    assert named == re.findall(r"- alert: (\w+)", (ROOT / "conf" / "prometheus-alerts.yml").read_text("utf-8"))


def test_every_guide_begins_with_a_table_or_a_picture() -> None:
    """Before its first section."""
    begins = {page.stem: page.read_text("utf-8").partition("\n## ")[0] for page in DOCS.glob("howto/*.md")}
    assert [guide for guide, text in begins.items() if "\n|" not in text and "![" not in text] == []


def test_messages_on_their_page_exist_in_the_code() -> None:
    there = "\n".join(message.replace("\n", " ") for message in messages())
    quoted = re.findall(r"^### (`+) ?(.+?) ?\1$", text_of("reference/messages.md"), re.MULTILINE)
    explained = [message for _, message in quoted if not message.startswith(OF_SPARK)]
    assert explained
    # … stands for any text.
    patterns = {message: ".*".join(map(re.escape, message.split("…"))) for message in explained}
    assert [message for message, pattern in patterns.items() if not re.search(pattern, there)] == []


def messages() -> Iterator[str]:
    """The texts in the package's sources, with … for placeholders, and the lines of its Lua scripts."""
    for path in sorted((ROOT / "spark_bull").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.JoinedStr):
                yield "".join(part.value if isinstance(part, ast.Constant) else "…" for part in node.values)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield re.sub(r"%[sdg]", "…", node.value)
    for path in sorted((ROOT / "spark_bull").rglob("*.lua")):
        yield from path.read_text("utf-8").splitlines()


def test_files_that_pages_for_maintainers_name_exist() -> None:
    ours = [path.as_posix() for path in (ROOT / "spark_bull").rglob("*.*")]
    for page in (*DOCS.glob("develop/*.md"), ROOT / "CONTRIBUTING.md"):
        named = set(re.findall(r"`([\w/]+\.(?:py|lua))`", page.read_text("utf-8")))
        others = {name for name in named if not any(path.endswith(f"/{name}") for path in ours)}
        missing = [name for name in others if not any((ROOT / folder / name).exists() for folder in ("", "tests"))]
        assert missing == [], page


def test_files_that_comments_name_exist() -> None:
    ours = [path for suffix in ("py", "lua") for path in sorted((ROOT / "spark_bull").rglob(f"*.{suffix}"))]
    named = {
        f"{path.relative_to(ROOT)}: {name}": name
        for path in ours
        for name in re.findall(r"\b(?:see|and) `?([\w/]+\.(?:py|lua))\b", path.read_text("utf-8"))
    }
    assert named
    missing = [place for place, name in named.items() if not any(path.match(name) for path in ours)]
    assert missing == []


def test_every_thread_and_lock_is_on_its_page() -> None:
    page = text_of("develop/threads-and-locks.md")
    code = "\n".join(path.read_text("utf-8") for path in (ROOT / "spark_bull").rglob("*.py"))
    locks = set(re.findall(r"(\w+)(?:: Final)? = Lock\(\)", code))
    threads = {f"spark-bull-{name}" for name in re.findall(r'DaemonThread\("([\w -]+)"', code)}
    assert locks
    assert threads
    assert [name for name in sorted(locks | threads) if not re.search(rf"[`.]{name}`", page)] == []


def test_the_readme_is_short_and_its_links_exist() -> None:
    text = (ROOT / "README.md").read_text("utf-8")
    assert len(text.splitlines()) <= 120
    links = [link.partition("#")[0] for link in re.findall(r"\]\((?!http)([^)]+)\)", text)]
    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_the_generated_tables_are_up_to_date() -> None:
    for name in ("reference/options.md", "reference/command.md", "concepts/dialects.md", "reference/pyspark.md"):
        text = (PAGES / name).read_text("utf-8")
        assert with_tables(text) == text, "run: python tools/reference_pages.py"


def test_every_option_is_listed_and_those_of_all_verbs_once() -> None:
    text = (PAGES / "reference" / "options.md").read_text("utf-8")
    listed = Counter(line.split("`")[1] for line in text.splitlines() if line.startswith("| `"))
    known = {option.attribute for scope in SCOPES for option in options_in(scope).values()}
    assert {in_snake_case(name) for name in listed} == known
    assert listed["url"] == listed["chunkSize"] == listed["queue"] == 1


def test_a_table_lists_the_options_of_its_scope_that_are_not_common() -> None:
    for scope in SCOPES:
        _, _, *rows = of(scope).splitlines()
        names = [scope.spelled(option.name) for option in options_in(scope).values()]
        common = {option.name for option in options_in(LimitsOptions).values()}
        assert [row.split("`")[1] for row in rows] == [name for name in names if camel_case(name) not in common]
        # A bar in a cell would break the row.
        assert all(row.count("|") == 4 for row in rows)


def test_defaults_are_shown_as_users_write_them() -> None:
    lines = [*shared().splitlines()[2:], *of(WriteOptions).splitlines()[2:], *of(CollectOptions).splitlines()[2:]]
    rows = {row.split("`")[1]: row.split(" | ")[1] for row in lines}
    assert rows["chunkSize"] == "500; when jobs are added or changed: 250"
    assert rows["confirmObliterate"] == "`false`"
    assert rows["failOnDataLoss"] == "`true`"
    assert rows["retryMs"] == "`20000`"
    assert rows["txnAppId"] == ""
    assert rows["states"] == "`completed,failed`"


def test_every_command_is_listed_once() -> None:
    text = (PAGES / "reference" / "command.md").read_text("utf-8")
    assert all(text.count(f"| `{command.name}` |") == 1 for command in all_commands().values())


def test_commands_that_texts_name_exist() -> None:
    named = {
        name
        for page in DOCS.rglob("*.md")
        for name in re.findall(r"`spark-bull ([a-z][a-z-]*)", page.read_text("utf-8"))
    }
    assert named
    assert named <= {*all_commands(), "help"}
