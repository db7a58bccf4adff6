"""The column `token` of claimed jobs."""

from __future__ import annotations

import pytest

from spark_bull.spark.process.settle_tokens import SettleToken, SettleTokens, read_settle_token


@pytest.mark.parametrize("lock_token", ["reader", "a#b", "a#1#plain", ""])
@pytest.mark.parametrize(("opts", "is_plain"), [("{}", True), (None, True), ('{"removeOnComplete": 3}', False)])
def test_a_settle_token_is_read_as_it_was_made(lock_token: str, opts: str | None, is_plain: bool) -> None:
    assert read_settle_token(SettleTokens(lock_token, 70).of(opts)) == SettleToken(lock_token, 70, is_plain)


@pytest.mark.parametrize("lock_token", ["reader", "a#b", "a#plain", "5", ""])
def test_a_text_of_another_form_is_read_as_the_token_of_a_lock(lock_token: str) -> None:
    assert read_settle_token(lock_token) == SettleToken(lock_token, 0, False)
