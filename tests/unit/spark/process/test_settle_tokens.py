"""The column `token` of claimed jobs."""

from __future__ import annotations

import pytest

from spark_bull.queue.process.claim_ledger import new_lock_token
from spark_bull.spark.process.tokens import SettleToken, SettleTokens, read_settle_token


@pytest.mark.parametrize("reader", ["reader", "a#b", "a#plain", "a\n", ""])
@pytest.mark.parametrize(("opts", "is_plain"), [("{}", True), (None, True), ('{"removeOnComplete": 3}', False)])
def test_a_settle_token_is_read_as_it_was_made(reader: str, opts: str | None, is_plain: bool) -> None:
    lock_token = new_lock_token(reader)
    assert read_settle_token(SettleTokens(lock_token).of(opts)) == SettleToken(lock_token, reader, is_plain)


@pytest.mark.parametrize("lock_token", ["reader", "a#b", "a#plain", "5", ""])
def test_a_text_of_another_form_is_read_as_the_token_of_a_lock(lock_token: str) -> None:
    assert read_settle_token(lock_token) == SettleToken(lock_token, lock_token, False)
