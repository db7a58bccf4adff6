"""Tickets: the column `token` of claimed jobs."""

from __future__ import annotations

import pytest

from spark_bull.spark.process.tickets import Ticket, Tickets, read_ticket


@pytest.mark.parametrize("token", ["reader", "a#b", "a#1#plain", ""])
@pytest.mark.parametrize(("opts", "is_plain"), [("{}", True), (None, True), ('{"removeOnComplete": 3}', False)])
def test_a_ticket_says_what_it_was_made_of(token: str, opts: str | None, is_plain: bool) -> None:
    assert read_ticket(Tickets(token, 70).of(opts)) == Ticket(token, 70, is_plain)


@pytest.mark.parametrize("token", ["reader", "a#b", "a#plain", "5", ""])
def test_a_text_that_is_no_ticket_is_the_token_of_a_lock(token: str) -> None:
    assert read_ticket(token) == Ticket(token, 0, False)
