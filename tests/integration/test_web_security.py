"""Who may do what over HTTP: tokens, sessions, other sites, other hosts; and that no secret is shown."""

from __future__ import annotations

import json
import logging
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi.routing import APIRoute

from spark_bull import BullQueue, EmbeddedRedis, FlowJob, OptionError
from spark_bull.ops.web.access import COOKIE, Access
from spark_bull.ops.web.api.description import described
from spark_bull.ops.web.middleware import MAX_BODY
from spark_bull.ops.web.page import actions, api_reference, job, jobs, overview, parts_of_queue, questions
from spark_bull.ops.web.server import create_app
from spark_bull.ops.web.settings import Role, Token, WebSettings
from tests.integration.conftest import Run
from tests.support.wait import wait_until
from tests.support.web import READ_TOKEN, READING, WRITE_TOKEN, WRITING, Web, serving

UNSAFE = {"POST", "PUT", "PATCH", "DELETE"}


def operations() -> list[tuple[str, str]]:
    """All operations of the API, with a queue and a job in the path."""
    paths = described(create_app(WebSettings()))["paths"]
    return [
        (method.upper(), path.replace("{queue}", "mail").replace("{id}", "1"))
        for path, found in paths.items()
        for method in found
    ]


@pytest.fixture
def queue(queue: BullQueue) -> BullQueue:
    queue.add({"n": 1})
    return queue


@pytest.fixture
def web(queue: BullQueue, web: Web) -> Web:
    """The server of the page, after the queue has its job."""
    return web


@pytest.fixture
def session(web: Web) -> dict[str, str]:
    """The headers of a session that may write, without its CSRF token."""
    return sign_in(web, WRITE_TOKEN)


def sign_in(web: Web, token: str) -> dict[str, str]:
    """The headers of a session, without its CSRF token."""
    answer = web.client.post("/login", data={"token": token})
    web.client.cookies.clear()
    return {"Cookie": f"{COOKIE}={answer.cookies[COOKIE]}"}


def csrf_token(web: Web, session: dict[str, str]) -> str:
    found = re.search(r'name="csrf" value="([0-9a-f]+)"', web.client.get("/queues/mail", headers=session).text)
    assert found
    return found[1]


def pause(web: Web, headers: dict[str, str], **fields: str) -> int:
    """Sends the form of the page that pauses the queue; returns the status of the answer."""
    return web.client.post("/queues/mail/actions/pause", data=fields, headers=headers).status_code


def test_no_operation_is_allowed_without_a_right_token(web: Web) -> None:
    found = operations()
    assert len(found) > 25
    wrong = ("x" * 40, READ_TOKEN + "x", WRITE_TOKEN[:-1], "ü")
    for headers in ({}, *({"Authorization": f"Bearer {token}".encode()} for token in wrong)):
        for method, path in found:
            answer = web.client.request(method, path, json={}, headers=headers)
            assert answer.status_code == 401, (method, path, headers, answer.text)
            assert answer.headers["www-authenticate"] == "Bearer"


def test_the_token_for_reading_reads_and_does_not_write(web: Web, queue: BullQueue) -> None:
    for method, path in operations():
        if method in UNSAFE:
            answer = web.client.request(method, path, json={}, headers=READING)
            assert answer.status_code == 403, (method, path, answer.text)
            assert "write token" in answer.json()["detail"]
    assert web.get("/queues/mail/jobs/1")["data"] == {"n": 1}
    assert queue.job("1") is not None


def test_a_reader_on_a_loopback_address_needs_no_token_and_cannot_write(
    queue: BullQueue, place: dict[str, str]
) -> None:
    with serving(**place, read_token=None) as web:
        assert web.ask("GET", "/queues/mail", code=200).json()["counts"]["wait"] == 1
        web.ask("POST", "/queues/mail/pause", code=401)
        web.post("/queues/mail/pause")
    with serving(**place, read_token=None, write_token=None) as web:
        refused = web.ask("POST", "/queues/mail/resume", code=403).json()
        assert "SPARK_BULL_WRITE_TOKEN" in refused["detail"]
    with serving(**place, read_only=True) as web:
        web.post("/queues/mail/resume", code=403)


def test_a_token_is_for_its_queues_and_its_role(open_queue: Callable[..., BullQueue], place: dict[str, str]) -> None:
    names = ("mail", "mail-late", "orders", "hidden")
    queues = {name: open_queue(name, "bullmq") for name in names}
    for name, one in queues.items():
        one.fail(one.add({"of": name}), f"reason of {name}")
    tokens = (Token("reads mail queues", Role.READ, ("mail*",)), Token("writes the orders", Role.WRITE, ("orders",)))
    with serving(**place, queues=("mail*", "orders"), tokens=tokens) as web:
        for token, known in (("reads mail queues", ["mail", "mail-late"]), ("writes the orders", ["orders"])):
            headers = {"Authorization": f"Bearer {token}"}
            listed = web.ask("GET", "/queues", code=200, headers=headers).json()["queues"]
            assert [one["queue"] for one in listed] == known
            jobs = web.ask("GET", "/jobs", code=200, headers=headers, params={"state": "failed"}).json()["jobs"]
            assert [job["queue"] for job in jobs] == known
            with httpx.Client(base_url=web.url, follow_redirects=True) as user:
                pages = user.post("/login", data={"token": token}).text + user.get("/jobs?state=failed").text
                pages += user.get("/schedulers").text
                assert {name for name in names if f"/queues/{name}" in pages} == {*known}
                for name in names:
                    assert (user.get(f"/queues/{name}").status_code == 200) == (name in known)
            for name in {*names} - {*known}:
                web.ask("GET", f"/events?queue={name}", code=404, headers=headers)
            for name in names:
                for method, path in (("GET", ""), ("GET", "/jobs"), ("GET", "/stats"), ("POST", "/pause")):
                    may = name in known and (method == "GET" or token.startswith("writes"))
                    refused = 403 if method == "POST" and token.startswith("reads") else 404
                    code = (204 if method == "POST" else 200) if may else refused
                    web.ask(method, f"/queues/{name}{path}", code=code, headers=headers)
            move = {"to": "hidden"} if token.startswith("writes") else {"to": "orders"}
            code = 404 if token.startswith("writes") else 403
            web.ask("POST", f"/queues/{known[0]}/jobs/1/move", code=code, headers=headers, json=move)
        assert [one["queue"] for one in web.get("/queues")["queues"]] == ["mail", "mail-late", "orders"]
        assert web.client.get("/readyz", headers={"Authorization": "Bearer none"}).status_code == 200
    assert queues["orders"].is_paused()
    assert not queues["mail"].is_paused()
    for token in tokens:
        with serving(**place, read_token=None, write_token=None, tokens=(token,)) as web:
            web.ask("GET", "/queues", code=401)


def test_a_token_removes_no_children_in_queues_that_do_not_exist_for_it(
    queue: BullQueue, open_queue: Callable[..., BullQueue], place: dict[str, str]
) -> None:
    hidden = open_queue("hidden", "bullmq")
    flow = FlowJob({}, children=[FlowJob({}, queue="hidden")])
    ids = [queue.add_flow(flow).id for _ in range(2)]
    token = "writes mail only"
    with serving(**place, tokens=(Token(token, Role.WRITE, ("mail",)),)) as web:
        headers = {"Authorization": f"Bearer {token}"}
        web.ask("DELETE", f"/queues/mail/jobs/{ids[0]}", code=409, headers=headers)
        web.ask("DELETE", f"/queues/mail/jobs/{ids[0]}?withChildren=false", code=204, headers=headers)
        wanted = {"action": "remove", "state": "waiting-children"}
        answer = web.ask("POST", "/queues/mail/changes", code=202, headers=headers, json=wanted)
        path = f"/queues/mail/writes/{answer.json()['id']}"
        wait_until(lambda: web.get(path)["state"] == "finished", "the change to end")
        assert web.ask("GET", path, code=200, headers=headers).json()["jobs"] == 0
        move = {"action": "move", "state": "waiting-children", "moveTo": "hidden"}
        web.ask("POST", "/queues/mail/changes", code=404, headers=headers, json=move)
        assert hidden.counts()["wait"] == 2
        web.ask("DELETE", f"/queues/mail/jobs/{ids[1]}", code=204, headers=WRITING)
        assert hidden.counts()["wait"] == 1


@pytest.mark.parametrize("kept", [True, False])
def test_a_reverse_proxy_has_the_server_under_a_path(place: dict[str, str], queue: BullQueue, kept: bool) -> None:
    """kept: whether the proxy passes the path on."""
    root = "/bull" if kept else ""
    with serving(**place, root_path="/bull") as web, httpx.Client(base_url=web.url + root) as user:
        assert user.get("/").headers["location"] == "/bull/login"
        signed_in = user.post("/login", data={"token": WRITE_TOKEN})
        assert signed_in.headers["location"] == "/bull/"
        cookie = signed_in.headers["set-cookie"]
        assert "Path=/bull;" in cookie
        user.headers["Cookie"] = cookie.partition(";")[0]
        queue.fail(queue.add({}), "no such host")
        for path in ("", "queues/mail?state=failed", "queues/mail/jobs/1", "jobs?state=failed", "schedulers", "api"):
            shown = user.get(f"/{path}")
            assert shown.status_code == 200
            found = re.findall(r' (?:href|src|action|formaction|data-events)="(/[^"]*)"', shown.text)
            assert len(found) > 5
            assert [url for url in found if not url.startswith("/bull/")] in ([], ["/bull"])
        for file in re.findall(r'(?:href|src)="/bull(/static/[^"]*)"', user.get("/").text):
            assert user.get(file).status_code == 200
        csrf = re.findall(r'name="csrf" value="([0-9a-f]+)"', user.get("/queues/mail?state=failed").text)[0]
        fields = {"csrf": csrf, "back": "/bull/jobs?state=failed", "state": "failed", "/queues/mail/jobs/1": "yes"}
        retried = user.post("/jobs/actions/retry", data=fields)
        assert retried.headers["location"] == "/bull/jobs?state=failed"
        assert queue.counts()["wait"] == 1
        assert user.get("/api/openapi.json").json()["servers"] == [{"url": "/bull"}]


def test_a_session_writes_with_its_csrf_token_only(web: Web, session: dict[str, str], queue: BullQueue) -> None:
    csrf, other = csrf_token(web, session), csrf_token(web, sign_in(web, WRITE_TOKEN))
    web.ask("GET", "/queues/mail", code=200, headers=session)
    for given in ({}, {"csrf": ""}, {"csrf": csrf[:-1]}, {"csrf": "ü"}, {"csrf": other}):
        assert pause(web, session, **given) == 403
    web.ask("POST", "/queues/mail/pause", code=403, headers={**session, "X-CSRF-Token": csrf})
    reader = sign_in(web, READ_TOKEN)
    assert pause(web, reader, csrf=csrf_token(web, reader)) == 403
    assert not queue.is_paused()
    assert pause(web, session, csrf=csrf) == 303
    assert queue.is_paused()


def test_the_cookie_of_a_session_is_out_of_reach_for_scripts_and_other_sites(web: Web) -> None:
    cookie = web.client.post("/login", data={"token": WRITE_TOKEN}).headers["set-cookie"].lower()
    assert {"httponly", "samesite=strict", "path=/"} <= set(cookie.split("; "))
    assert "a token" not in cookie
    behind_tls = {"X-Forwarded-Proto": "https"}
    cookie = web.client.post("/login", data={"token": WRITE_TOKEN}, headers=behind_tls).headers["set-cookie"]
    assert "secure" in cookie.lower().split("; ")


def test_a_forged_or_expired_session_is_none(
    web: Web, session: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    value = session["Cookie"].partition("=")[2]
    role, expires, nonce, signature = value.split(".")
    later, no_role = f"{role}.{int(expires) + 1}.{nonce}.{signature}", f"0.{expires}.{nonce}.{signature}"
    signed = [f"{role}.{expires}.{nonce}.{end}" for end in ("0" * 64, "", signature + "0")]
    for cookie in (later, no_role, *signed, "", "...", "ü"):
        web.ask("GET", "/queues", code=401, headers={"Cookie": f"{COOKIE}={cookie}".encode()})
    settings = WebSettings(write_token=WRITE_TOKEN)
    access = Access(settings)
    cookie = access.open_session(settings.all_tokens[0])
    assert access.session_of(cookie) is not None
    assert Access(WebSettings(write_token=WRITE_TOKEN)).session_of(cookie) is None
    monkeypatch.setattr("spark_bull.ops.web.access.time.time", lambda: float(expires) + 3_600)
    assert access.session_of(cookie) is None


def test_the_login_form_leads_to_the_page_or_back(web: Web) -> None:
    wrong = web.client.post("/login", data={"token": "x" * 30})
    assert (wrong.status_code, wrong.headers["location"]) == (303, "/login?wrong=1")
    assert "set-cookie" not in wrong.headers
    right = web.client.post("/login", data={"token": WRITE_TOKEN})
    assert (right.status_code, right.headers["location"]) == (303, "/")
    web.ask("GET", "/queues", code=200)
    assert web.client.post("/logout").headers["location"] == "/login"
    web.ask("GET", "/queues", code=401)


def test_requests_of_other_sites_are_refused(web: Web, session: dict[str, str]) -> None:
    csrf = csrf_token(web, session)
    for headers in (
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site", "Origin": "http://127.0.0.1:1"},
    ):
        refused = web.ask("POST", "/queues/mail/pause", code=403, headers={**session, **headers}).json()
        assert "expected a request of this site" in refused["detail"]
        assert pause(web, {**session, **headers}, csrf=csrf) == 403
        for path in ("/login", "/logout"):
            answer = web.client.post(path, data={"token": WRITE_TOKEN}, headers=headers)
            assert (answer.status_code, "set-cookie" in answer.headers) == (403, False)
    own = {"Origin": web.url, "Sec-Fetch-Site": "same-origin"}
    assert pause(web, {**session, **own}, csrf=csrf) == 303


def test_foreign_hosts_are_refused_on_a_loopback_address(place: dict[str, str]) -> None:
    with serving(**place, host_names=("queues.example",)) as web:
        for host in ("evil.example", "evil.example:8080", "127.0.0.1.evil.example", "", "[::2]:80"):
            answer = web.client.get("/api/queues", headers={**READING, "Host": host})
            assert answer.status_code in (400, 421), host
        for host in ("localhost:1", "127.0.0.1", "[::1]:8080", "queues.example", "LOCALHOST"):
            assert web.client.get("/api/queues", headers={**READING, "Host": host}).status_code == 200


def test_every_answer_has_the_security_headers_and_is_stored_nowhere(web: Web, session: dict[str, str]) -> None:
    @web.server.app.get("/broken")
    def broken() -> None:
        raise ZeroDivisionError

    answers = [
        web.client.get("/broken"),
        *(web.client.get(path) for path in ("/api/queues", "/login", "/healthz", "/static/page.css", "/queues/mail")),
        *(web.client.get(path, headers=READING) for path in ("/api/queues", "/api/none", "/api/openapi.json")),
        *(web.client.get(path, headers=session) for path in ("/", "/queues/mail", "/queues/mail/jobs/1")),
        web.client.get("/api/queues", headers={"Host": "evil.example"}),
        web.client.head("/api/queues/mail/events", headers=READING),
        # It sets the cookie of a session.
        web.client.post("/login", data={"token": WRITE_TOKEN}),
    ]
    assert {answer.status_code for answer in answers} == {200, 303, 401, 404, 421, 500}
    for answer in answers:
        found = answer.headers
        policy = dict(part.split(" ", 1) for part in found["content-security-policy"].split("; "))
        assert policy["default-src"] == policy["frame-ancestors"] == policy["base-uri"] == "'none'"
        assert policy["script-src"] == policy["connect-src"] == policy["form-action"] == "'self'"
        assert "unsafe" not in found["content-security-policy"]
        assert (found["x-content-type-options"], found["x-frame-options"]) == ("nosniff", "DENY")
        assert found["cross-origin-opener-policy"] == found["cross-origin-resource-policy"] == "same-origin"
        assert found["referrer-policy"] == "same-origin"
        assert found["cache-control"] == "no-store", answer.url
        assert not {"server", "access-control-allow-origin"} & {*found}


def test_large_bodies_are_refused_with_and_without_their_length(web: Web) -> None:
    text = b'{"data": "' + b"x" * MAX_BODY + b'"}'
    for content in (text, iter([text[: MAX_BODY // 2], text[MAX_BODY // 2 :]])):
        headers = {**WRITING, "Content-Type": "application/json"}
        web.ask("POST", "/queues/mail/jobs", code=413, content=content, headers=headers)


def test_wrong_root_paths_and_tokens_are_refused_and_other_addresses_demand_a_token() -> None:
    others = ["0.0.0.0", "::", "192.0.2.1", "queues.example"]
    for given, message in [
        *(
            ({"root_path": path}, "expected --root-path to be a path such as /bull")
            for path in ("bull", "/bull/", "//x", "/a b", "/queues", "/api/x")
        ),
        ({"read_token": "short"}, "expected the read token to have at least 16"),
        ({"write_token": "ü" * 20}, "expected the write token to have at least 16 printable ASCII"),
        ({"read_token": "x" * 16, "write_token": "x" * 16}, "expected different tokens"),
        *(({"host": host}, r"SPARK_BULL_READ_TOKEN.*or listen on 127\.0\.0\.1") for host in others),
    ]:
        with pytest.raises(OptionError, match=message) as caught:
            WebSettings(**given)
        assert not [value for name, value in given.items() if name.endswith("token") and value in str(caught.value)]
    assert all(WebSettings(host=host, write_token=WRITE_TOKEN).demands_token for host in others)
    assert not WebSettings(host="::1", write_token=WRITE_TOKEN).demands_token


def test_the_command_reads_tokens_from_files_and_the_environment(run: Run, tmp_path: Path) -> None:
    file, further = tmp_path / "token", tmp_path / "tokens"
    file.write_text(f"{WRITE_TOKEN}\n")
    further.write_text(f"# whose, for what, which queues\n\n{'f' * 16} read mail,report-*\n")
    command = [sys.executable, "-m", "spark_bull.ops.cli", *run.common, "serve", "--listen", "127.0.0.1:0"]
    command += ["--write-token-file", str(file), "--tokens-file", str(further), "--root-path", "/bull"]
    environment = {"SPARK_BULL_READ_TOKEN": READ_TOKEN, "PYTHONPATH": str(Path(__file__).parents[2])}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as process:
        line = process.stderr.readline()
        assert "to read only" not in line
        url = re.search(r"http://\S+?(?=;)", line)
        assert url, line
        with httpx.Client(base_url=url[0]) as client:
            assert client.get("/api/queues").status_code == 401
            assert client.get("/api/queues", headers=READING).status_code == 200
            of_file = {"Authorization": f"Bearer {'f' * 16}"}
            for headers, status in ((READING, 403), (WRITING, 404), (of_file, 403)):
                assert client.post("/bull/api/queues/none/pause", headers=headers).status_code == status
        process.terminate()
        rest = process.stderr.read()
        assert (process.wait(600), rest) == (0, "")
    assert READ_TOKEN not in line
    further.write_text(f"{'f' * 16} admin *\n")
    ended = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert ended.returncode == 2
    assert f"expected line 1 of {further} to be `TOKEN read|write QUEUES`" in ended.stderr
    assert "f" * 16 not in ended.stderr


def test_no_secret_is_shown(own_redis: Any, caplog: pytest.LogCaptureFixture) -> None:
    """In answers, errors, the description, the representation of settings, and logs."""
    password = "a-password-of-redis"
    redis: EmbeddedRedis = own_redis({"requirepass": password})
    url = redis.url if password in redis.url else redis.url.replace("redis://", f"redis://:{password}@")
    caplog.set_level(logging.DEBUG)
    shown = [repr(WebSettings(url=url, read_token=READ_TOKEN, write_token=WRITE_TOKEN))]
    BullQueue("mail", url=url, protocol="bullmq").add({"n": 1})
    for address in (url, url.replace(password, "a-wrong-password")):
        with serving(url=address) as web:
            for method, path in [*operations(), ("GET", "/api/openapi.json"), ("GET", "/api/none")]:
                if not path.endswith("/events"):
                    answer = web.client.request(method, path, json={"data": 1}, headers=WRITING)
                    shown.append(answer.text + json.dumps(dict(answer.headers)))
    text = "\n".join([*shown, caplog.text])
    assert "refused the user or password" in text
    for secret in (password, "a-wrong-password", READ_TOKEN, WRITE_TOKEN):
        assert secret not in text


def test_no_page_is_shown_and_no_form_works_without_a_token(web: Web) -> None:
    tried = 0
    for part in (actions, api_reference, job, jobs, overview, parts_of_queue, questions):
        for route in part.router.routes:
            assert isinstance(route, APIRoute)
            path = re.sub(r"\{(\w+)(:path)?\}", "mail", route.path)
            for method in route.methods:
                answer = web.client.request(method, path)
                expected = [303] if method == "GET" else [303, 401, 403]
                assert answer.status_code in expected, (method, path, answer.text)
                if answer.status_code == 303:
                    assert answer.headers["location"].startswith("/login")
                tried += 1
    assert tried > 10
