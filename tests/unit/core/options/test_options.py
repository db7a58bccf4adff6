"""The table of options: names, values, combinations; any value is taken or refused by name; no secret is shown."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from spark_bull.core.dialects.registry import DIALECTS
from spark_bull.core.errors import DialectError, OptionError
from spark_bull.core.model.jobs import STATES
from spark_bull.core.model.limits import GroupLimits, Limiter
from spark_bull.core.options.parse import SPARK_OPTIONS, as_texts, parse_arguments, parse_options
from spark_bull.core.options.parts import Options, options_in
from spark_bull.core.options.table import (
    SCOPES,
    ClaimOptions,
    CollectOptions,
    ManageOptions,
    QueueOptions,
    ReadOptions,
    ScheduleOptions,
    SettleOptions,
    WorkOptions,
    WriteOptions,
)
from tests.support.bad_input import each_number, texts, tried, values

SECRET = "hunter2"


@pytest.mark.parametrize(
    ("scope", "name", "text", "value"),
    [
        (WriteOptions, "chunkSize", " 250 ", 250),
        (WriteOptions, "scanKeys", "no", False),
        (WriteOptions, "confirmObliterate", "1", True),
        (WriteOptions, "protocol", "BullMQ", "bullmq"),
        (WriteOptions, "name", "Send It", "Send It"),
        (WriteOptions, "backoff", '{"type": "exponential", "delay": 250}', {"type": "exponential", "delay": 250}),
        (WriteOptions, "removeOnComplete", "100", 100),
        (WriteOptions, "removeOnFail", '{"age": 60}', {"age": 60}),
        (WriteOptions, "opts", '{"stackTraceLimit": 5}', {"stackTraceLimit": 5}),
        (ReadOptions, "jobIds", " a, b,,c ", ("a", "b", "c")),
        (ReadOptions, "states", ",".join(STATES), STATES),
        (CollectOptions, "startingOffsets", "Latest", "latest"),
        (CollectOptions, "startingOffsets", "2030-01-02T03:04:05Z", "1893553445000"),
        (CollectOptions, "startingOffsets", "2030-01-02T05:04:05.678+02:00", "1893553445678"),
        # As a float, this time is a ms less.
        (CollectOptions, "startingOffsets", "2004-03-15T07:55:47.472Z", "1079337347472"),
        (CollectOptions, "startingOffsets", "1700000000123", "1700000000123"),
    ],
)
def test_a_text_becomes_a_value(scope: type[Options], name: str, text: str, value: Any) -> None:
    parsed = parse_options({name: text}, scope).value(name)
    assert parsed == value
    assert type(parsed) is type(value)


@pytest.mark.parametrize(
    ("scope", "name", "text", "expectation"),
    [
        (WriteOptions, "chunkSize", "2001", "an integer from 1 to 2,000"),
        (WriteOptions, "stageTtlMs", "10", "an integer >= 1,000"),
        (WriteOptions, "scanKeys", "maybe", "true or false"),
        (WriteOptions, "protocol", "kue", "one of auto, bull-1, bull, bullmq"),
        (WriteOptions, "delivery", "twice", "one of exactly-once, at-least-once"),
        (WriteOptions, "backoff", "soon", "ms, or a JSON object with type and delay"),
        (WriteOptions, "removeOnFail", "all", "true, false, a count, or an object"),
        *[
            (WriteOptions, "addressMap", text, "addresses and those")
            for text in ("a", "a=b=c", "=b", "a=b:0", '{"a": 1}')
        ],
        (WriteOptions, "opts", "[]", "a JSON object"),
        (ReadOptions, "numPartitions", "0", "an integer from 1 to 10,000"),
    ],
)
def test_a_bad_value_is_refused_with_what_was_expected_and_what_came(
    scope: type[Options], name: str, text: str, expectation: str
) -> None:
    with pytest.raises(OptionError, match=re.escape(f"expected `{name}` to be {expectation}")) as error:
        parse_options({name: text}, scope)
    assert repr(text) in str(error.value)


def test_names_are_matched_without_regard_to_case() -> None:
    for spell in (str.lower, str.upper, str):
        options = parse_options(
            {spell("chunkSize"): "7", spell("txnAppId"): "A", spell("txnVersion"): "1"}, WriteOptions
        )
        assert (options.chunk_size, options.txn_app_id, options.txn_version) == (7, "A", 1)


def test_a_retention_rule_may_be_a_value_or_a_text() -> None:
    given = (False, "False", " true ", 7, "7", -1, {"age": 60, "count": 5}, '{"age": 60}')
    rules = (False, False, True, 7, 7, -1, {"age": 60, "count": 5}, {"age": 60})
    for name, spelt in (("removeOnComplete", "remove_on_complete"), ("removeOnFail", "remove_on_fail")):
        for value, rule in zip(given, rules, strict=True):
            parsed = parse_options(as_texts({spelt: value}), WorkOptions).value(name)
            assert (parsed, type(parsed)) == (rule, type(rule))


def test_an_invalid_rule_number_or_limiter_is_refused() -> None:
    limiter = {"max": 3, "duration": 1}
    wrong: dict[tuple[str, str], tuple[Any, ...]] = {
        ("remove_on_fail", "true, false, a count, or an object"): ("", "null", -2, [], {"ages": 5}, {"age": "5"}),
        ("retry", "names of error classes with numbers of attempts"): (
            *("soon", "[]", {"TimeoutError": -1}, {"no name": 1}, {"A": True}, {"A": 1.5}, {"A": "5"}, {"": 1}),
        ),
        ("lock_ms", "an integer >= 300, got: "): (True, 1.5, "soon", 299),
        ("limiter", "an object such as"): ({"max": 3}, {"max": True, "duration": 1}, 3, limiter | {"groupKey": ""}),
        ("group", "an object such as .*"): (
            {"concurrency": 2},
            *({"by": by, "concurrency": 2} for by in ("", "a..b", 1)),
            *(
                {"by": "tenant", "concurrency": 2} | more
                for more in ({"concurrency": 0}, {"concurrency": True}, {"x": 1})
            ),
            *({"by": "tenant"} | rate for rate in ({"max": 5}, {"duration_ms": 5}, {"max": 1.5, "duration_ms": 1})),
            "tenant",
        ),
    }
    for (name, expected), given_values in wrong.items():
        for value in given_values:
            with pytest.raises(OptionError, match=f"expected `{name}` to be {expected}"):
                parse_options(as_texts({name: value}), WorkOptions)


@pytest.mark.parametrize(
    ("more", "kept"), [({"groupKey": "tenant"}, {"group_key": "tenant"}), ({"bounceBack": True}, {"bounce_back": True})]
)
def test_a_limiter_may_limit_groups_or_keep_jobs_waiting(more: dict[str, Any], kept: dict[str, Any]) -> None:
    value = {"max": 3, "duration": 50} | more
    limiter = parse_options(as_texts({"limiter": value}), WorkOptions).limiter
    assert limiter == Limiter(3, 50, **kept)
    assert limiter.given == value


def test_limits_of_groups_are_optional() -> None:
    given = {"by": "to.tenant", "max": 5, "duration_ms": 1000, "concurrency": 2}
    assert parse_arguments({"group": given}, WorkOptions).group == GroupLimits("to.tenant", 5, 1000, 2)
    assert parse_arguments({"group": {"by": "tenant"}}, WorkOptions).group == GroupLimits("tenant")
    assert parse_arguments({}, WorkOptions).group is None


def test_a_limiter_excludes_others() -> None:
    value = {"max": 3, "duration": 50, "groupKey": "tenant"}
    with pytest.raises(OptionError, match="expected one of `group` and a `limiter` with `groupKey`"):
        parse_options(as_texts({"limiter": value, "group": {"by": "tenant", "concurrency": 1}}), WorkOptions)
    with pytest.raises(OptionError, match="expected one of `groupKey` and `bounceBack` in `limiter`, got both"):
        parse_options(as_texts({"limiter": value | {"bounceBack": True}}), WorkOptions)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"groupKey": "tenant"}, r"expected no `groupKey` in `limiter`: .* use the argument `group`"),
        ({"bounceBack": True}, r"expected no `bounceBack` in `limiter`: .* in `wait`; leave it out"),
    ],
)
def test_a_limiter_is_refused_where_it_does_not_exist(more: dict[str, Any], said: str) -> None:
    options = parse_options(as_texts({"limiter": {"max": 3, "duration": 50} | more}), ClaimOptions)
    DIALECTS["bull"].check_options(options)
    for name in ("bull-1", "bullmq"):
        with pytest.raises(DialectError, match=said):
            DIALECTS[name].check_options(options)


@pytest.mark.parametrize("scope", [QueueOptions, WorkOptions])
def test_python_accepts_only_the_snake_case_name_of_an_option(scope: str) -> None:
    with pytest.raises(OptionError, match=r"^unknown option `chunkSize` \(did you mean `chunk_size`\?\)$"):
        parse_arguments({"chunkSize": 1}, scope)
    with pytest.raises(OptionError, match="expected `chunk_size` to be "):
        parse_arguments({"chunk_size": "bad"}, scope)


def test_options_are_documented_and_those_of_python_in_snake_case() -> None:
    for scope in SCOPES:
        assert all(row.doc for row in options_in(scope).values())
        assert not SPARK_OPTIONS & options_in(scope).keys()
        assert all(re.fullmatch("[a-z_]+", name) for name in options_in(scope) if scope.in_python)


def test_options_that_spark_adds_are_ignored() -> None:
    added = dict.fromkeys((*SPARK_OPTIONS, "checkpointLocation"), "x")
    for scope in (WriteOptions, ReadOptions):
        assert parse_options({**added, "queue": "q"}, scope).given == {"queue"}


#: Options that are wrong, and what is said. `view` is of another scope than WriteOptions.
WRONG: list[tuple[type[Options], dict[str, str], str]] = [
    (ReadOptions, {"states": "wait,complete"}, r"completed, failed, got: 'complete' \(did you mean `completed`\?\)"),
    (ReadOptions, {"view": "metric"}, r"metrics.*, got: 'metric' \(did you mean `metrics`\?\)"),
    (WriteOptions, {"passwort": "x"}, r"^unknown option `passwort` \(did you mean `password`\?\)"),
    *((WriteOptions, {name: "x"}, f"^unknown option `{name}`$") for name in ("zzz", "viev")),
    (WriteOptions, {"view": "7"}, "option `view` is for reads, not for writes"),
    (WorkOptions, {"states": "7"}, "option `states` is for reads, not for a Worker"),
    (ScheduleOptions, {"maxLength": "7"}, f"option `maxLength` is for writes, not for {ScheduleOptions.title}"),
    *(
        (
            scope,
            {"shards": "7"},
            rf"not for {scope.title}: give the name of one shard, such as mail\{{0\}}, ",
        )
        for scope in (ScheduleOptions, ManageOptions, SettleOptions, ClaimOptions)
    ),
    (WriteOptions, {"txnAppId": "a"}, "got no `txnVersion`"),
    (WriteOptions, {"txnVersion": "1"}, "got no `txnAppId`"),
    (WriteOptions, {"url": "redis://a", "shardUrls": "redis://b"}, "expected one of `url` and `shardUrls`, got both"),
    (WriteOptions, {"url": "redis://:one/two@localhost:6379"}, "percent-encode"),
    *(
        (WriteOptions, {name: SECRET}, f"`{name}` cannot be passed to redis-py")
        for name in ("redis.password", "redis.host", "redis.decode_responses")
    ),
]


@pytest.mark.parametrize(("scope", "raw", "message"), WRONG)
def test_options_that_are_unknown_or_do_not_go_together_are_refused(
    scope: type[Options], raw: dict[str, str], message: str
) -> None:
    with pytest.raises(OptionError, match=message):
        parse_options(raw, scope)


def test_missing_options_have_their_defaults() -> None:
    for scope in (WriteOptions, ReadOptions):
        options = parse_options({}, scope)
        assert options.given == frozenset()
        assert all(options.value(row.name) == row.default for row in options_in(scope).values())


def test_no_error_shows_a_secret() -> None:
    urls = ("h:{}", "[{}@h", ":p/{}@h", ":p?{}@h", ":p#{}@h")
    raws = [{"url": f"redis://{url.format(SECRET)}"} for url in urls]
    raws += [{"url": f"redis://me:{SECRET}@h"} | more for more in ({"shardUrls": "redis://x"}, {"nonsense": "x"})]
    for raw in (*raws, {"url": f"http://me:{SECRET}@h"}, {"password": SECRET, "chunkSize": "no"}):
        with pytest.raises(OptionError) as error:
            parse_options(raw, WriteOptions)
        assert SECRET not in str(error.value)


#: Each option in each of its scopes.
ROWS = [(row.name, scope) for scope in SCOPES for row in options_in(scope).values()]
OF_SPARK = [row for row in ROWS if not row[1].in_python]
OF_PYTHON = [row for row in ROWS if row[1].in_python]

#: Nested more deeply than Python parses.
DEEP = "[" * 2_000

Rows = list[tuple[str, type[Options]]]
Parse = Callable[[Mapping[str, Any], type[Options]], object]


def is_refused(parse: Parse, name: str, scope: type[Options], value: Any) -> bool:
    own, refusal = scope.spelled(name), ""
    try:
        parse({own: value}, scope)
    except OptionError as error:
        refusal = str(error) or "nothing"
    assert not refusal or f"`{own}`" in refusal, f"{own} in {scope.__name__} = {value!r}: {refusal}"
    return bool(refusal)


@pytest.mark.parametrize(
    ("rows", "parse", "tried_values"),
    [(OF_SPARK, parse_options, texts()), (OF_PYTHON, parse_arguments, texts() | values())],
    ids=["Spark", "Python"],
)
@each_number
def test_an_option_takes_a_value_or_refuses_it_by_its_name(
    rows: Rows, parse: Parse, tried_values: st.SearchStrategy[Any], cases: int
) -> None:
    refused = set[str]()

    @tried(cases)
    @given(tried_values)
    @example(DEEP)
    @example("0\x1f")
    @example("9" * 5_000)
    def send(value: Any) -> None:
        refused.update(name for name, scope in rows if is_refused(parse, name, scope, value))

    send()
    assert len(refused) > 20


@each_number
def test_options_together_are_taken_or_refused(cases: int) -> None:
    @tried(cases)
    @given(st.sampled_from([scope for scope in SCOPES if not scope.in_python]), st.data())
    def send(scope: type[Options], data: st.DataObject) -> None:
        names = st.sampled_from([name for name, its in OF_SPARK if its == scope]) | texts()
        options = data.draw(st.dictionaries(names, texts(), max_size=6))
        with suppress(OptionError):
            parse_options(options, scope)

    send()
