"""The REST API, fuzzed from its own description, and the page: no internal error; answers are as they are described."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any
from urllib.parse import quote, urlencode

import pytest
import schemathesis
from fastapi.routing import APIRoute
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from hypothesis.errors import Unsatisfiable
from requests.exceptions import ChunkedEncodingError, ConnectionError
from schemathesis import GenerationMode
from schemathesis.checks import load_all_checks, not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_schema_conformance,
    status_code_conformance,
)

from spark_bull import BullQueue, NewJob
from spark_bull.ops.web.page import api_reference, job, jobs, login, overview, parts_of_queue, questions
from tests.support.bad_input import each_number, texts, tried
from tests.support.web import READING, WRITING, Web, serving
from tests.support.work_bench import DIALECTS

# Not `positive_data_acceptance`: a job with `delay` and `runAt`, or a damaged cursor, fits its schema and is refused.
load_all_checks()
CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
#: For bodies only: each text is a valid value of most parameters.
NEGATIVE_CHECKS = [*CHECKS, negative_data_rejection]
#: The pages that are shown.
PAGES = [
    route
    for part in (api_reference, job, jobs, login, overview, parts_of_queue, questions)
    for route in part.router.routes
    if isinstance(route, APIRoute) and "GET" in route.methods
]
#: An existing job; also in requests of which everything else is random.
KNOWN = {"queue": "mail", "id": "known"}


@pytest.fixture(params=[("bullmq",)])
def servers(redis_url: str, prefix: str, request: pytest.FixtureRequest) -> Iterator[list[tuple[Web, BullQueue]]]:
    """A server and its queue for each dialect. All get the same requests: generating them takes half of the time."""
    with ExitStack() as opened:
        started = []
        for protocol in request.param:
            own = {"url": redis_url, "prefix": f"{prefix}:{protocol}"}
            queue = BullQueue("mail", **own, protocol=protocol)
            refill(queue)
            started.append((opened.enter_context(serving(**own, queues=("mail", "late"))), queue))
        yield started


@pytest.mark.slow
@pytest.mark.parametrize(
    ("servers", "examples"),
    [
        pytest.param(DIALECTS, 2, marks=pytest.mark.rest, id="rest"),
        pytest.param(DIALECTS, 100, marks=pytest.mark.soak, id="soak"),
    ],
    indirect=["servers"],
)
def test_no_request_ends_in_an_internal_error_or_an_answer_that_is_not_described(
    servers: list[tuple[Web, BullQueue]], examples: int
) -> None:
    web, _ = servers[0]
    description = web.client.get("/api/openapi.json", headers=WRITING).json()
    tried = 0
    for result in schemathesis.openapi.from_dict(description).get_all_operations():
        operation = result.ok()
        if operation.path.endswith("/events"):
            # A stream does not end.
            continue
        known = {name: value for name, value in KNOWN.items() if f"{{{name}}}" in operation.path}
        for mode in GenerationMode:
            for parameters in [known, None] if known else [None]:
                tried += fuzz(servers, operation, examples, mode, parameters)
    assert tried > 100


#: What uvicorn reads of a request line, bytes.
LONGEST_URL = 64 * 1024


def fuzz(
    servers: list[tuple[Web, BullQueue]],
    operation: Any,
    examples: int,
    mode: GenerationMode,
    path_parameters: dict[str, str] | None,
) -> int:
    """Sends requests of one operation to each server; returns their number."""
    sent = 0
    only_body: dict[str, Any] = {}
    if mode is GenerationMode.NEGATIVE and operation.body:
        only_body = {"query": {}, "headers": {}, "cookies": {}}

    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate],
    )
    @given(case=operation.as_strategy(mode, path_parameters=path_parameters, **only_body))
    def send(case: Any) -> None:
        nonlocal sent
        sent += 1
        for web, queue in servers:
            refill(queue)
            try:
                answer = case.call(base_url=web.url, headers=WRITING)
            except (ConnectionError, ChunkedEncodingError):
                answer = None
            if answer is None or len(answer.request.url or "") > LONGEST_URL:
                # The server refuses a request line that is too long before the application sees it.
                continue
            case.validate_response(answer, checks=NEGATIVE_CHECKS if only_body else CHECKS)

    try:
        send()
    except Unsatisfiable:
        # The operation has nothing that could be wrong.
        assert mode is GenerationMode.NEGATIVE, operation.label
    return sent


def refill(queue: BullQueue) -> None:
    """Makes sure that the queue has the job that requests know."""
    queue.open_intake()
    if queue.job(KNOWN["id"]) is None:
        queue.add_many([NewJob({"n": 1}, job_id=KNOWN["id"]), NewJob("later", delay=3_600_000), NewJob([1])])


@each_number
def test_no_page_ends_in_an_internal_error(servers: list[tuple[Web, BullQueue]], cases: int) -> None:
    web, _ = servers[0]

    @tried(cases)
    @given(st.data())
    def show(data: st.DataObject) -> None:
        page = data.draw(st.sampled_from(PAGES))
        parts = {name: data.draw(st.just(KNOWN.get(name, "7")) | texts()) for name in re.findall(r"{(\w+)", page.path)}
        path = re.sub(r"{(\w+)(:\w+)?}", lambda found: quote(parts[found[1]].encode(errors="surrogatepass")), page.path)
        names = [parameter.alias for parameter in page.dependant.query_params]
        given_texts = texts().map(lambda text: text.encode(errors="surrogatepass"))
        query = data.draw(st.dictionaries(st.sampled_from(names), given_texts) if names else st.just({}))
        text = urlencode(query)
        answer = web.client.get(f"{path}?{text}", headers=READING)
        assert answer.status_code < 500, (path, text, answer.text[:500])

    show()
