"""Encoding jobs as chunks: options with marks, defaults, errors with row numbers, limits of chunks."""

from __future__ import annotations

import json
import tracemalloc
from collections import Counter
from collections.abc import Mapping
from decimal import Decimal
from itertools import pairwise, product
from typing import Any

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_bull.core.clock import LAST_ETA_MS, epoch_ms
from spark_bull.core.dialects.base import MARKS, UNSUPPORTED_OPTIONS, Dialect
from spark_bull.core.dialects.encode.chunks import ChunkBuilder, EncodedJobs, joined, listed, pack, sliced
from spark_bull.core.dialects.encode.codec import encode, rows_of
from spark_bull.core.dialects.registry import DIALECTS
from spark_bull.core.dialects.terms import ID_MARK
from spark_bull.core.errors import DialectError, OptionError, SparkBullError
from spark_bull.core.model.jobs import NewJob

TIMESTAMP_MARK, DELAY_MARK, JOB_ID_MARK = MARKS["timestamp"], MARKS["delay"], MARKS["jobId"]
BULL1, BULL, BULLMQ = DIALECTS["bull-1"], DIALECTS["bull"], DIALECTS["bullmq"]

PARENT = {"queue": "mail", "id": "p"}
FAILING = PARENT | {"onFailure": "fail"}

some_dialect = st.sampled_from(sorted(DIALECTS)).map(DIALECTS.__getitem__)


def encoded(dialect: Dialect, defaults: Mapping[str, Any] | None = None, **rows: list[Any]) -> EncodedJobs:
    count = len(next(iter(rows.values())))
    return encode(dialect, {"data": ["{}"] * count, **rows}, defaults or {}, range(count))


# options of one job


@pytest.mark.parametrize("dialect", [BULL, BULLMQ], ids=["bull", "bullmq"])
def test_priorities_by_name_are_stored_as_numbers(dialect: Dialect) -> None:
    columns = encoded(dialect, {"priority": "low"}, priority=["critical", "high", "medium", "normal", None])
    assert columns.priority == [1, 2, 3, 4, 5]
    assert [json.loads(text.replace("\x01", "1"))["priority"] for text in columns.opts] == [1, 2, 3, 4, 5]


def test_bull_1_has_no_priorities_bullmq_limits_them_and_bull_does_not() -> None:
    assert BULL1.prepare({"priority": 0}).priority == 0
    for priority in (1, "high"):
        said = f"^expected no `priority` {priority!r}: jobs of bull-1 have no priority; .* mail:prio:high"
        with pytest.raises(DialectError, match=said):
            BULL1.prepare({"priority": priority})
    assert BULLMQ.prepare({"priority": 2_097_151}).priority == 2_097_151
    with pytest.raises(OptionError, match="an integer from 0 to 2,097,151"):
        BULLMQ.prepare({"priority": 2_097_152})
    assert BULL.prepare({"priority": 2_097_152}).priority == 2_097_152


def test_dialects_without_parents_refuse_them() -> None:
    for dialect in (BULL, BULL1):
        with pytest.raises(DialectError, match=f"`parent`: jobs of {dialect.name} have no children and no parents"):
            encoded(dialect, parent=[PARENT])


def test_unsupported_options_are_refused() -> None:
    for name, dialect in product(UNSUPPORTED_OPTIONS, DIALECTS.values()):
        with pytest.raises(DialectError, match=f"`{name}` in `opts`"):
            dialect.prepare({name: {"id": "x"}})


JSON_OPTS = st.dictionaries(
    st.text(min_size=1).map(lambda name: f"x-{name}"),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text() | st.sampled_from(["\x01", "\x02", "\x03", "\x04"]),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
        max_leaves=5,
    ),
    max_size=3,
)


@given(some_dialect, JSON_OPTS, st.booleans(), st.booleans(), st.booleans())
def test_any_options_survive_encoding_and_decoding(
    dialect: Dialect, more: dict[str, Any], delay: bool, timestamp: bool, job_id: bool
) -> None:
    marked = {"delay": delay, "timestamp": timestamp, "jobId": job_id}
    given_opts = more | {name: 1 for name, chosen in marked.items() if chosen}
    text = dialect.prepare(given_opts).opts
    # The script replaces the marks in one pass.
    for mark, value in ((TIMESTAMP_MARK, "11"), (DELAY_MARK, "12"), (JOB_ID_MARK, '"13"')):
        text = text.replace(mark, value)
    opts = json.loads(text)
    assert {name: opts.get(name) for name in more} == more
    for name, value in (("timestamp", 11), ("delay", 12), ("jobId", "13")):
        if marked[name]:
            assert opts[name] == value
    assert text.encode()


#: Values of properties, some of them wrong. None means not given.
PROPERTIES: dict[str, list[Any]] = {
    "jobId": [None, "a", "b:c:d", "", "7", 5, "meta"],
    "delay": [None, 0, 5, 60_000, -1, LAST_ETA_MS, "soon", True],
    "runAt": [None, 0, 1_900_000_000_000, LAST_ETA_MS + 1],
    "timestamp": [None, 1, 1_700_000_000_000, True],
    "priority": [None, 0, 7, Decimal("7"), -1],
    "attempts": [None, 1, 3, True, -1],
    "lifo": [None, True, False],
    "removeOnComplete": [None, True, 1, 100, {"age": 5}],
    "deduplication": [None, "x", "y", "", {"id": "z", "ttl": 5}],
    "expireAfterMs": [None, 1_000, 10],
}
DEFAULTS: list[dict[str, Any]] = [
    {},
    {"delay": 500},
    {"runAt": 1_900_000_000_000},
    {"timestamp": 1_700_000_000_000},
    {"attempts": 5, "opts": {"jobId": "own", "keepLogs": 2}},
    {"deduplication": {"ttl": 100}},
    {"spreadMs": 1_000},
    {"expireAfterMs": 20},
]


@st.composite
def rows_of_properties(draw: st.DrawFn) -> dict[str, list[Any]]:
    names = draw(st.lists(st.sampled_from(list(PROPERTIES)), unique=True, max_size=4))
    count = draw(st.integers(1, 6))
    return {name: draw(st.lists(st.sampled_from(PROPERTIES[name]), min_size=count, max_size=count)) for name in names}


def jobs_or_error(dialect: Dialect, defaults: Mapping[str, Any], rows: dict[str, list[Any]]) -> Any:
    try:
        jobs = encoded(dialect, defaults, **rows)
        return jobs.marked, {name: listed(column, jobs.n) for name, column in jobs._asdict().items()}
    except SparkBullError as error:
        return type(error), str(error)


@settings(max_examples=150)
@given(some_dialect, rows_of_properties(), st.sampled_from(DEFAULTS))
def test_rows_of_one_shape_are_encoded_as_each_of_them_alone(
    dialect: Dialect, rows: dict[str, list[Any]], defaults: dict[str, Any]
) -> None:
    count = len(next(iter(rows.values()), [None]))
    # Rows with options of their own have no shapes.
    one_by_one = {**rows, "opts": ["{}"] * count}
    data = {"data": ["{}"] * count}
    assert jobs_or_error(dialect, defaults, data | rows) == jobs_or_error(dialect, defaults, data | one_by_one)


# deduplication ids


def stored(dialect: Dialect, given: Any, default: Any = None) -> dict[str, Any] | None:
    """The option as it is stored for a row, by the name that the Node library gives it."""
    columns = encoded(dialect, {} if default is None else {"deduplication": default}, deduplication=[given])
    text = str(columns.opts).replace(ID_MARK, json.dumps(columns.deduplication_id))
    opts = json.loads(text.replace(DELAY_MARK, "0").replace(TIMESTAMP_MARK, "0"))
    assert columns.marked or columns.deduplication_id is None
    found: dict[str, Any] | None = opts.get("de", opts.get("debounce"))
    return found


def test_a_deduplication_id_is_stored_as_by_the_library_and_a_default_without_one_is_the_rule_of_rows() -> None:
    rule = {"id": "é 1", "ttl": 5, "extend": False, "replace": True, "reschedule": None}
    assert stored(BULLMQ, 7) == {"id": "7"}
    assert stored(BULLMQ, rule) == {"id": "é 1", "ttl": 5, "extend": False, "replace": True}
    assert stored(BULL, {"id": "x", "ttl": 5}) == {"id": "x", "ttl": 5}
    default = {"ttl": 9, "extend": True}
    assert stored(BULLMQ, "x", default) == {"id": "x", "ttl": 9, "extend": True}
    assert stored(BULLMQ, {"id": "x", "ttl": 8}, default) == {"id": "x", "ttl": 8, "extend": True}
    assert stored(BULLMQ, None, default) is None
    assert stored(BULLMQ, {}, default) is None
    assert stored(BULLMQ, None, "all") == {"id": "all"}
    assert stored(BULLMQ, "x", "all") == {"id": "x"}


def test_a_deduplication_id_can_be_in_opts_by_the_name_of_the_library() -> None:
    assert encoded(BULLMQ, opts=[{"deduplication": {"id": "x"}}]).deduplication_id == "x"
    assert encoded(BULL, opts=['{"debounce": {"id": "x", "ttl": 5}}']).deduplication == '{"ttl":5}'


def test_dialects_without_deduplication_ids_refuse_them() -> None:
    with pytest.raises(DialectError, match="bull-1 has no deduplication ids"):
        encoded(BULL1, {"deduplication": {"ttl": 5}}, jobId=["a"])
    with pytest.raises(DialectError, match="row 0: expected `deduplication` without `extend`: bull has only"):
        encoded(BULL, deduplication=[{"id": "x", "extend": True}])
    for dialect in (BULL1, BULLMQ):
        with pytest.raises(DialectError, match="expected no `debounce` in `opts`"):
            encoded(dialect, opts=[{"debounce": {"id": "x"}}])


# rows


def test_a_default_applies_to_rows_without_a_value() -> None:
    columns = encode(BULLMQ, {"data": ["1", "2"]}, {"priority": 5, "opts": {"tenant": "t"}}, range(2))
    assert (columns.priority, columns.opts) == (5, '{"attempts":0,"priority":5,"tenant":"t"}')
    columns = encoded(BULLMQ, {"priority": 5, "name": "n"}, priority=[None, 1, 0], name=[None, "a", ""])
    assert columns.priority == [5, 1, None]
    assert columns.name == ["n", "a", ""]


def test_sql_decimals_become_json_numbers() -> None:
    backoff = {"type": "exponential", "delay": Decimal("100.00"), "jitter": Decimal("0.5")}
    columns = encoded(BULLMQ, backoff=[backoff], removeOnFail=[{"age": Decimal(60)}])
    assert json.loads(columns.opts) == {
        "attempts": 0,
        "backoff": {"type": "exponential", "delay": 100, "jitter": 0.5},
        "removeOnFail": {"age": 60},
    }


def test_a_struct_of_what_json_cannot_hold_is_refused_by_name() -> None:
    said = r"row 0: expected `backoff(\.delay)?` to be (ms|a value that JSON can hold)"
    for delay in (b"5", object(), Decimal("NaN")):
        with pytest.raises(OptionError, match=said):
            encoded(BULLMQ, backoff=[{"type": "fixed", "delay": delay}])


def test_opts_are_merged_last() -> None:
    columns = encoded(
        BULLMQ,
        {"opts": {"tenant": "a", "kept": 1}},
        priority=[1, 1, 1],
        opts=[None, '{"priority": 9, "tenant": "b"}', {"delay": 5}],
    )
    assert columns.priority == [1, 9, 1]
    assert columns.delay == [None, None, 5]
    assert json.loads(columns.opts[1]) == {"attempts": 0, "priority": 9, "tenant": "b", "kept": 1}


def test_a_job_id_in_opts_is_checked_as_one_in_its_column() -> None:
    assert encoded(BULLMQ, opts=['{"jobId": "a"}', '{"jobId": "b"}']).job_id == ["a", "b"]
    with pytest.raises(OptionError, match="row 1: expected `jobId` not to be an integer"):
        encoded(BULLMQ, opts=['{"jobId": "a"}', '{"jobId": 7}'])


def test_the_time_of_a_row_overrides_the_default_and_is_one() -> None:
    soon = epoch_ms() + 60_000
    late, early = encoded(BULLMQ, {"delay": 1}, runAt=[soon]), encoded(BULLMQ, {"runAt": soon}, delay=[1])
    assert (late.delay, late.run_at, early.delay, early.run_at) == (None, soon, 1, None)
    assert encoded(BULLMQ, timestamp=[LAST_ETA_MS + 1], delay=[0]).timestamp == LAST_ETA_MS + 1


BAD_ROWS: list[tuple[dict[str, Any], str]] = [
    ({"priority": -1}, "or one of critical, high, medium, normal, low, got: -1"),
    ({"priority": "hihg"}, "got: 'hihg' (did you mean `high`?)"),
    ({"attempts": 1.5}, "`attempts` to be an integer >= 0"),
    ({"backoff": -1}, "`backoff` to be ms >= 0"),
    ({"backoff": "fast"}, "`backoff` to be ms, or an object"),
    ({"backoff": {"type": "fixed", "delay": -1}}, "`backoff.delay` to be ms >= 0"),
    ({"backoff": {"type": "fixed", "delay": 1, "jitter": 2}}, "`backoff.jitter` to be a number from 0 to 1"),
    ({"removeOnComplete": "yes"}, "`removeOnComplete` to be true, false, a count"),
    ({"removeOnFail": {"days": 1}}, "`removeOnFail` to be true, false, a count"),
    ({"parent": "p"}, "`parent` to be an object with `queue` and `id`"),
    ({"parent": {"id": "p"}}, "`parent.queue` to be the name of a queue, got: None"),
    ({"parent": {"queue": "mail", "id": ""}}, "`parent.id` to be the id of a job, got: ''"),
    ({"parent": PARENT | {"onFail": "wait"}}, "member `onFail` of `parent` (did you mean `onFailure`?)"),
    ({"parent": PARENT | {"onFailure": "stop"}}, "`parent.onFailure` to be one of wait, fail"),
    ({"parent": FAILING, "opts": {"ignoreDependencyOnFailure": True}}, "they exclude each other"),
    ({"opts": {"failParentOnFailure": True, "removeDependencyOnFailure": True}}, "they exclude each other"),
    ({"parent": FAILING, "deduplication": "x"}, "a child can't be deduplicated"),
    ({"opts": {"parent": PARENT}, "deduplication": "x"}, "expected one of `deduplication` and `parent`, got both"),
    ({"deduplication": ""}, "`deduplication` to be an id, or an object with `id` and a rule such as `ttl` (ms), got"),
    ({"deduplication": {"id": ""}}, "`deduplication.id` to be a text that is not empty, got: ''"),
    ({"deduplication": {"ttl": 5}}, "`deduplication` to have an `id`, got: {'ttl': 5}"),
    ({"deduplication": {"id": "x", "ttl": 0}}, "`deduplication.ttl` to be a positive integer (ms), got: 0"),
    ({"deduplication": {"id": "x", "replace": "yes"}}, "`deduplication.replace` to be true or false, got: 'yes'"),
    ({"deduplication": {"id": "x", "deferrableBy": -1}}, "`deduplication.deferrableBy` to be an integer >= 0 (s)"),
    ({"deduplication": {"id": "x", "keepLast": True}}, "unknown member `keepLast` of `deduplication` (did you mean"),
    ({"deduplication": {"id": "x", "maxDelay": 5, "ttl": 5}}, "`maxDelay` to have `replace` or `reschedule`"),
    ({"deduplication": {"id": "x", "deferrableBy": 1, "ttl": 5}}, "one of `deferrableBy` and `ttl`, got both"),
    ({"delay": -1}, "`delay` to be ms >= 0, got: -1"),
    ({"delay": LAST_ETA_MS}, "`delay` to end before 2039-09-07"),
    ({"delay": 1, "runAt": 5}, "expected one of `delay` and `runAt`, got both"),
    ({"runAt": LAST_ETA_MS + 1}, "`runAt` to end before 2039-09-07"),
    ({"opts": "[1]"}, "`opts` to be a JSON object, got: [1]"),
    ({"opts": '{"delay": 1.5}'}, "`delay` to be ms, got: 1.5"),
    ({"opts": '{"timestamp": "now"}'}, "`timestamp` to be ms, got: 'now'"),
    ({"opts": '{"score": NaN}'}, "`opts` to be a value that JSON can hold"),
    ({"jobId": ""}, "`jobId` to be a text that is not empty"),
    ({"data": None}, "`data` to be JSON, got NULL"),
    ({"expireAfterMs": 0}, "`expireAfterMs` to be a positive integer (ms), got: 0"),
    ({"expireAt": True}, "`expireAt` to be a time (ms since 1970), got: True"),
    ({"expireAfterMs": 5, "expireAt": 5}, "one of `expireAfterMs` and `expireAt`, got both"),
    ({"expireAfterMs": 60, "delay": 60}, "`expireAfterMs` to end after `delay`"),
    ({"expireAfterMs": 60, "delay": 30, "spreadMs": 30}, "`expireAfterMs` to end after `delay`"),
    ({"expireAt": 2000, "runAt": 2000}, "`expireAt` to end after `runAt`"),
    ({"spreadMs": -1}, "`spreadMs` to be an integer >= 0 (ms), got: -1"),
    ({"lockMs": 299}, "`lockMs` to be an integer >= 300 (ms), got: 299"),
    ({"delivery": "exactly-once"}, "`delivery` to be at-most-once or at-least-once for a job, got: 'exactly-once'"),
    ({"delivery": "at-most-once", "attempts": 2}, "`attempts` to be 1 with `delivery` at-most-once, got: 2"),
    ({"opts": '{"expireAfterMs": "1h"}'}, "`expireAfterMs` to be a positive integer (ms), got: '1h'"),
]


@pytest.mark.parametrize(("row", "message"), BAD_ROWS, ids=[ascii(row) for row, _ in BAD_ROWS])
def test_a_bad_row_is_refused_with_its_number(row: dict[str, Any], message: str) -> None:
    rows = {"data": ["{}", "{}"], **{name: [None, value] for name, value in row.items() if name != "data"}}
    rows["data"][1] = row.get("data", "{}")
    with pytest.raises(OptionError) as error:
        encode(BULLMQ, rows, {}, [40, 41])
    assert str(error.value).startswith("row 41: ")
    assert message in str(error.value)


ODD_IDS = ("", "7", "-7", "07", "0:7", "a:7", "a:b:7", "wait", "spark", "de", "metrics", "spark:a:b", "a:b:lock")


@given(some_dialect, st.lists(st.one_of(st.sampled_from(ODD_IDS), st.text(alphabet="a0:-\n", max_size=3)), max_size=3))
def test_ids_that_are_accepted_together_are_accepted_one_by_one(dialect: Dialect, ids: list[str]) -> None:
    assert dialect.are_plain_ids(["UA1-EWR-0101", "UA2-EWR-0101"])
    if dialect.are_plain_ids(ids):
        for job_id in ids:
            dialect.check_job_id(job_id)


def test_terms_of_a_job_that_may_be_stored_to_run_later_are_refused() -> None:
    terms = {"expireAfterMs": 9, "expireAt": 9, "delivery": "at-most-once"}
    for name, (rule, value) in product(terms, {"keepLastIfActive": True, "deferrableBy": 5}.items()):
        with pytest.raises(OptionError, match=f"row 0: expected no `{name}` with `deduplication.{rule}`"):
            encoded(BULLMQ, deduplication=[{"id": "x", rule: value}], **{name: [terms[name]]})


@pytest.mark.parametrize(("given", "first"), [({}, 0), ({"delay": 50}, 50)])
def test_rows_are_delayed_by_different_times_that_are_the_same_again(given: dict[str, int], first: int) -> None:
    def delays(seed: int, start: int, count: int) -> list[int]:
        defaults = {"spreadMs": 1_000, "spreadSeed": seed, **given}
        columns = encode(BULLMQ, {"data": ["{}"] * count}, defaults, range(start, start + count))
        assert isinstance(columns.opts, str)
        return [delay or 0 for delay in columns.delay or ()]

    made = delays(0, 0, 1_000)
    assert delays(0, 400, 100) == made[400:500]
    assert delays(1, 0, 1_000) != made
    assert first <= min(made) <= max(made) < first + 1_000
    tenths = Counter((delay - first) // 100 for delay in made)
    assert len(tenths) == 10
    assert all(50 < count < 200 for count in tenths.values())


def test_the_spread_of_a_row_is_added_to_its_time() -> None:
    soon = epoch_ms() + 60_000
    columns = encoded(BULLMQ, runAt=[soon, soon, None], spreadMs=[1_000, None, 1_000])
    run_ats = columns.run_at or []
    assert isinstance(run_ats, list)
    assert soon < (run_ats[0] or 0) < soon + 1_000
    assert run_ats[1:] == [soon, None]


def test_the_size_limit_of_a_payload_is_in_bytes() -> None:
    rows = {"data": ['"ab"', '"éé"']}
    assert encode(BULLMQ, rows, {"opts": {"sizeLimit": 6}}, range(2)).n == 2
    with pytest.raises(OptionError, match="row 1: expected `data` within `sizeLimit` of 5 bytes, got 6"):
        encode(BULLMQ, rows, {"opts": {"sizeLimit": 5}}, range(2))


def test_an_unpaired_surrogate_is_escaped_in_opts_and_refused_elsewhere() -> None:
    assert '"note":"\\ud800"' in encoded(BULLMQ, opts=['{"note": "\\ud800"}']).opts
    for name in ("name", "jobId", "data"):
        with pytest.raises(OptionError, match="to be a text that UTF-8 can encode"):
            pack(encoded(BULLMQ, **{name: ["\ud800"]}))


# jobs of plain Python


def test_data_that_json_cannot_hold_or_that_is_nested_too_deeply_is_refused() -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    holds, deeply = "expected `data` to be a value that JSON can hold", "expected `data` to be nested less deeply"
    for data, said in (({1, 2}, holds), (float("nan"), holds), ({"a": object()}, holds), (b"x", holds), (deep, deeply)):
        with pytest.raises(OptionError, match=said):
            rows_of([NewJob(data)])


# chunks

SCALARS = st.none() | st.integers(0, 9) | st.text("ab", max_size=2)


@st.composite
def batches(draw: st.DrawFn) -> EncodedJobs:
    count = draw(st.integers(0, 8))
    data = draw(st.lists(st.text("xé", max_size=40), min_size=count, max_size=count))
    given = draw(st.sets(st.sampled_from(["name", "opts", "delay"])))
    columns = {name: draw(SCALARS | st.lists(SCALARS, min_size=count, max_size=count)) for name in given}
    return EncodedJobs(count, data, marked=draw(st.booleans()), **columns)


def rows_in(columns: EncodedJobs) -> list[tuple[Any, ...]]:
    names = ("data", "name", "opts", "delay")
    return list(zip(*(listed(getattr(columns, name), columns.n) for name in names), strict=True))


@given(st.lists(batches(), max_size=6), st.integers(1, 10), st.integers(1, 100))
def test_chunks_hold_all_rows_in_order_and_keep_their_limits(
    parts: list[EncodedJobs], size: int, most_bytes: int
) -> None:
    builder = ChunkBuilder(size, most_bytes)
    cut = [chunk for part in parts for chunk in builder.add(part)]
    gathered = builder.gathered
    cut += builder.flush()
    chunks = [EncodedJobs(**msgpack.unpackb(packed, raw=False)) for _, packed in cut]

    assert [row for chunk in chunks for row in rows_in(chunk)] == [row for part in parts for row in rows_in(part)]
    assert [rows for rows, _ in cut] == [chunk.n for chunk in chunks]
    for chunk in chunks:
        assert 1 <= chunk.n <= size
        weight = sum(len(text.encode()) for text in chunk.data)
        assert weight <= most_bytes or chunk.n == 1
    for chunk, after in pairwise(chunks):
        # A chunk ends only when it is full.
        weight = sum(len(text.encode()) for text in [*chunk.data, after.data[0]])
        assert chunk.n == size or weight > most_bytes
    assert gathered <= most_bytes or not chunks or chunks[-1].n == 1
    assert builder.gathered == 0
    assert list(builder.flush()) == []


def test_large_payloads_are_not_measured_all_at_once() -> None:
    payload, most_bytes = "x" * 100_000, 1 << 20
    jobs = EncodedJobs(n=500, data=[payload] * 500, name="n", opts="{}", delay=0)
    builder = ChunkBuilder(500, most_bytes)
    tracemalloc.start()
    try:
        chunks = sum(1 for _ in builder.add(jobs))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert chunks == 49
    assert peak < 10 * most_bytes


@given(st.lists(batches().filter(lambda part: part.n), min_size=1, max_size=4))
def test_joined_parts_hold_all_rows_and_are_marked_if_any_part_is(parts: list[EncodedJobs]) -> None:
    whole = joined(parts)
    assert rows_in(whole) == [row for part in parts for row in rows_in(part)]
    assert whole.marked == any(part.marked for part in parts)


@given(batches(), st.integers(0, 8), st.integers(0, 8))
def test_a_slice_holds_the_rows_of_its_range(columns: EncodedJobs, start: int, more: int) -> None:
    stop = min(start + more, columns.n)
    start = min(start, stop)
    assert rows_in(sliced(columns, start, stop)) == rows_in(columns)[start:stop]
