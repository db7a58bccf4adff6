"""Any value of any option is taken, or refused by an OptionError that names the option."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from spark_bull.errors import OptionError
from spark_bull.options.parse import parse_arguments, parse_options, spelled
from spark_bull.options.table import PYTHON_SCOPES, TABLE
from tests.support.bad_input import each_number, texts, tried, values

#: Each option in each of its scopes.
ROWS = [(row.name, scope) for row in TABLE for scope in row.scopes]
OF_SPARK = [row for row in ROWS if row[1] not in PYTHON_SCOPES]
OF_PYTHON = [row for row in ROWS if row[1] in PYTHON_SCOPES]

#: Nested more deeply than Python parses.
DEEP = "[" * 2_000

Rows = list[tuple[str, str]]
Parse = Callable[[Mapping[str, Any], str], object]


def is_refused(parse: Parse, name: str, scope: str, value: Any) -> bool:
    own, refusal = spelled(name, scope), ""
    try:
        parse({own: value}, scope)
    except OptionError as error:
        refusal = str(error) or "nothing"
    assert not refusal or f"`{own}`" in refusal, f"{own} in {scope} = {value!r}: {refusal}"
    return bool(refusal)


@pytest.mark.parametrize(("rows", "parse"), [(OF_SPARK, parse_options), (OF_PYTHON, parse_arguments)])
@each_number
def test_an_option_takes_a_text_or_refuses_it_by_its_name(rows: Rows, parse: Parse, cases: int) -> None:
    refused = set[str]()

    @tried(cases)
    @given(texts())
    @example(DEEP)
    @example("0\x1f")
    @example("9" * 5_000)
    def send(text: str) -> None:
        refused.update(name for name, scope in rows if is_refused(parse, name, scope, text))

    send()
    assert len(refused) > 20


@each_number
def test_an_argument_takes_a_value_or_refuses_it_by_its_name(cases: int) -> None:
    @tried(cases)
    @given(values())
    @example(DEEP)
    def send(value: Any) -> None:
        for name, scope in OF_PYTHON:
            is_refused(parse_arguments, name, scope, value)

    send()


@each_number
def test_options_together_are_taken_or_refused(cases: int) -> None:
    @tried(cases)
    @given(st.sampled_from(sorted({scope for _, scope in OF_SPARK})), st.data())
    def send(scope: str, data: st.DataObject) -> None:
        names = st.sampled_from([name for name, its in OF_SPARK if its == scope]) | texts()
        options = data.draw(st.dictionaries(names, texts(), max_size=6))
        with suppress(OptionError):
            parse_options(options, scope)

    send()
