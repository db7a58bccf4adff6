"""What protects the forms of the page, and pages about errors; without a browser."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from html import unescape

import httpx
import pytest
from redis import Redis

from spark_bull.core.clock import moment_of, ms_of
from spark_bull.core.embedded import EmbeddedRedis
from spark_bull.core.model.jobs import NewJob
from spark_bull.core.model.limits import WorkSettings
from spark_bull.core.model.read_jobs import FlowJob
from spark_bull.core.queue.bull_queue import BullQueue
from spark_bull.core.queue.work.claim import work
from tests.support.wait import wait_until
from tests.support.web import READ_TOKEN, WRITE_TOKEN, serving
from tests.support.writes import register_all
from tests.web.conftest import Site

SignIn = Callable[[str, str], httpx.Client]


@pytest.fixture
def sign_in() -> Iterator[SignIn]:
    """Signs in at a URL with a token, as a browser does."""
    with ExitStack() as users:

        def signed_in(url: str, token: str) -> httpx.Client:
            user = users.enter_context(httpx.Client(base_url=url, follow_redirects=True, timeout=60))
            assert user.post("/login", data={"token": token}).status_code == 200
            return user

        yield signed_in


@pytest.fixture
def user(site: Site, sign_in: SignIn) -> httpx.Client:
    return sign_in(site.url, WRITE_TOKEN)


def csrf_of(user: httpx.Client, path: str) -> str:
    found = re.search(r'name="csrf" value="([0-9a-f]+)"', user.get(path).text)
    assert found
    return found[1]


def test_a_form_of_a_session_that_has_ended_leads_to_the_login(site: Site) -> None:
    site.queue("ended").add({})
    with httpx.Client(base_url=site.url) as user:
        answer = user.post("/queues/ended/actions/pause", data={"csrf": "of before"})
    assert (answer.status_code, answer.headers["location"]) == (303, "/login")
    assert not site.queue("ended").is_paused()


def test_a_form_never_leads_to_another_site(site: Site, user: httpx.Client) -> None:
    site.queue("leads").add({})
    token = csrf_of(user, "/queues/leads")
    for back in ("https://example.org", "//example.org", "/\\example.org"):
        answer = user.post("/queues/leads/actions/resume", data={"csrf": token, "back": back}, follow_redirects=False)
        assert answer.headers["location"] == "/"
        asks = user.get("/queues/leads/jobs/1/actions/remove", params={"back": back}).text
        assert 'data-cancel href="/queues/leads"' in asks
        assert "example.org" not in asks


def test_what_does_not_exist_is_a_page_that_says_so(site: Site, user: httpx.Client) -> None:
    for path, status, text in [
        ("/queues/nothing-here", 404, "Not found"),
        ("/queues/errors/jobs/7", 404, "expected a job 7 in queue errors, found none"),
        ("/queues/errors/jobs/text-job/raw/nothing", 404, "expected one of the fields data"),
        ("/queues/errors/actions/nothing", 404, "expected one of the actions"),
        ("/queues/errors?state=nothing", 409, "expected a state"),
        ("/queues/errors?from=yesterday", 400, "expected `from` to be a time"),
        ("/queues/errors?order=random", 400, "expected `order`"),
        ("/queues/errors?cursor=nothing", 400, "expected `cursor`"),
    ]:
        site.queue("errors").add({}, job_id="text-job")
        answer = user.get(path)
        assert (answer.status_code, answer.headers["content-type"]) == (status, "text/html; charset=utf-8")
        assert text in answer.text.replace("&#39;", "'")


def test_names_with_slashes_have_pages(site: Site, user: httpx.Client) -> None:
    queue = site.queue("a/b?c#d%2F")
    job_id = queue.add({}, job_id="x/y?z%")
    listed = user.get("/queues/a%2Fb%3Fc%23d%252F?state=wait")
    found = re.search(r'href="(/queues/[^"]*/jobs/[^"]*)"><span class="name">', listed.text)
    assert found
    shown = user.get(found[1]).text
    assert f"<h1>{job_id}</h1>" in shown
    back = re.search(r'name="back" value="([^"]*)"', shown)
    assert back
    assert back[1] == found[1]


def test_json_that_has_no_form_in_utf8_is_shown_escaped_and_a_trace_without(site: Site, user: httpx.Client) -> None:
    queue = site.queue("half")
    job_id = queue.add({})
    half = '"\\ud800"'
    fields = {"data": half, "returnvalue": half, "stacktrace": f"[{half}]", "opts": f'{{"x":{half}}}'}
    site.client.hset(queue.handle.keys.job(job_id), mapping=fields)
    shown = user.get(f"/queues/half/jobs/{job_id}").text
    assert (shown.count("\\ud800"), shown.count("\ufffd")) == (len(fields) - 1, 1)
    for field in fields:
        whole = user.get(f"/queues/half/jobs/{job_id}/raw/{field}").text
        assert ("\ufffd" if field == "stacktrace" else "\\ud800") in whole


def test_the_family_of_a_job_leads_to_each_child(site: Site, user: httpx.Client) -> None:
    children = [FlowJob({"page": n}, queue="pages-of-book") for n in range(3)]
    flow = site.queue("books").add_flow(FlowJob({}, job_id="book", children=children))
    shown = user.get("/queues/books/jobs/book").text
    for child in flow.children:
        path = f"/queues/pages-of-book/jobs/{child.id}"
        assert f'<a href="{path}">pages-of-book / {child.id}</a>' in shown
        assert '<a href="/queues/books/jobs/book">books / book</a>' in user.get(path).text


def test_a_page_of_jobs_says_of_how_many(site: Site, user: httpx.Client) -> None:
    queue = site.queue("pages")
    queue.add_many(NewJob({"n": n}, "even" if n % 2 == 0 else "odd") for n in range(1_200))
    shown = user.get("/queues/pages?state=wait").text
    assert "25 of 1,200 jobs" in shown
    following = re.search(r'rel="next" href="([^"]*)"', shown)
    assert following
    assert "25 of 1,200 jobs" in user.get(following[1].replace("&amp;", "&")).text
    assert "25 found on this page; 1,200 wait in all" in user.get("/queues/pages?state=wait&name=even").text


def test_the_writes_of_a_queue_are_shown_in_pages(site: Site, user: httpx.Client) -> None:
    queue = site.queue("written")
    for number in range(51):
        register_all(queue.handle, f"w{number}", [])
    newest = user.get("/queues/written/writes").text
    following = re.search(r'rel="next" href="([^"]*)"', newest)
    assert following
    oldest = user.get(following[1]).text
    found = [re.findall(r'<tr id="write-([^"]*)"', page) for page in (newest, oldest)]
    assert found == [[f"w{number}" for number in range(50, 0, -1)], ["w0"]]
    assert 'rel="prev" href="/queues/written/writes?start=0"' in oldest


def test_the_jobs_of_all_queues_are_one_list_with_totals(site: Site, user: httpx.Client) -> None:
    for number in range(3):
        queue = site.queue(f"total-{number}")
        for job_id in queue.add_many(NewJob({}) for _ in range(15)).ids[: 10 + number]:
            queue.fail(job_id, "no route to host")
    site.forget_queues()
    listed = user.get("/?match=total-").text
    assert '<a href="/jobs?state=failed&amp;match=total-" aria-label="33 failed in all queues">33</a>' in listed
    assert 'aria-label="12 wait in all queues"' in listed
    shown = user.get("/jobs?match=total-").text
    assert "25 of 33 jobs" in shown
    following = re.search(r'rel="next" href="([^"]*)"', shown)
    assert following
    rest = user.get(following[1].replace("&amp;", "&")).text
    found = [set(re.findall(r'<tr id="job-(total-[^"]*)"', page)) for page in (shown, rest)]
    assert [len(ids) for ids in found] == [25, 8]
    assert len(found[0] | found[1]) == 33
    assert 'rel="next"' not in rest
    assert "No delayed jobs" in user.get("/jobs?state=delayed&match=total-").text
    assert user.get("/jobs?state=nothing").status_code == 400


def test_statistics_show_percentiles_of_waiting_and_run_times(site: Site, user: httpx.Client) -> None:
    queue = site.queue("times")
    now = queue.handle.connection.now_ms()
    job_id = queue.add({}, name="mail", timestamp=now - 60_000)
    queue.complete(job_id)
    fields = {"processedOn": now - 55_000, "finishedOn": now - 54_495}
    site.client.hset(queue.handle.keys.job(job_id), mapping=fields)
    shown = user.get("/queues/times/stats").text
    assert "mail" in shown
    found = re.findall(r'data-label="(Waited|Ran) (p\d+)">([^<]*)<', shown)
    times = [(what, p, time) for what, time in (("Waited", "5.0 s"), ("Ran", "505 ms")) for p in ("p50", "p95", "p99")]
    assert found == times * 2


def send(user: httpx.Client, path: str, **fields: object) -> httpx.Response:
    """Sends a form as its page would; `path`: of the action."""
    queue = path.split("/actions/")[0]
    return user.post(path, data={"csrf": csrf_of(user, "/"), **fields} | {"back": queue})


def test_a_job_is_added_copied_and_changed(site: Site, user: httpx.Client) -> None:
    queue = site.queue("made", protocol="bullmq")
    queue.add({}, job_id="first")
    given = {"data": '{"to": "ada"}', "name": "mail", "job_id": "own", "delay": "3600000", "attempts": "3"}
    assert "Job own was added" in send(user, "/queues/made/actions/add", **given).text
    assert "Job own exists already" in send(user, "/queues/made/actions/add", **given).text
    job = queue.job("own")
    assert (job.data, job.name, job.state, job.delay) == ({"to": "ada"}, "mail", "delayed", 3_600_000)
    copied = user.get("/queues/made/actions/add?like=own").text
    assert "&#34;to&#34;: &#34;ada&#34;" in copied
    assert 'name="attempts" value="3"' in copied
    asked = user.get("/queues/made/jobs/own/actions/change").text
    etag = re.search(r'name="etag" value="&#34;([0-9a-f]+)&#34;"', asked)
    assert etag
    change = "/queues/made/jobs/own/actions/change"
    same = '{\r\n  "to": "ada"\r\n}'
    fields = {"etag": f'"{etag[1]}"', "data": same, "priority": "0", "delay": ""}
    assert "stays as it is" in send(user, change, **fields).text
    fields |= {"data": '{"to": "grace"}', "priority": "7", "delay": "7200000"}
    assert "Job own has changed: data, delay, priority" in send(user, change, **fields).text
    job = queue.job("own")
    assert (job.data, job.priority, job.delay) == ({"to": "grace"}, 7, 7_200_000)
    assert "has changed meanwhile" in send(user, change, **fields | {"data": "1"}).text
    assert queue.job("own") == job


def test_a_form_with_a_wrong_field_asks_again_and_keeps_what_was_typed(site: Site, user: httpx.Client) -> None:
    for action, fields, reason in [
        ("add", {"data": "{to: ada}", "name": "typed"}, "expected `data` to be JSON"),
        ("add", {"data": "NaN", "name": "typed"}, "NaN is not JSON"),
        ("add", {"data": "1", "name": "typed", "delay": "soon"}, "expected `delay` to be a whole number"),
        ("limits", {"concurrency": "5", "max": "77"}, "expected `max` and `duration_ms` together"),
        ("obliterate", {"confirm": "wrongs", "force": "yes"}, "expected the name of the queue, wrong"),
    ]:
        queue = site.queue("wrong", protocol="bullmq")
        queue.add({}, job_id="stays")
        before = queue.counts()
        answer = send(user, f"/queues/wrong/actions/{action}", **fields)
        assert answer.status_code == 400
        assert reason in answer.text
        for value in set(fields.values()) - {"yes", "1"}:
            assert value in answer.text
        assert ("checked" in answer.text) == ("force" in fields)
        assert queue.counts() == before
        assert queue.limits().concurrency is None


def test_limits_are_set_and_removed(site: Site, user: httpx.Client) -> None:
    queue = site.queue("limited", protocol="bullmq")
    queue.add({})
    send(user, "/queues/limited/actions/limits", concurrency="5", max="100", duration_ms="60000")
    found = queue.limits()
    assert (found.concurrency, found.max, found.duration_ms) == (5, 100, 60_000)
    shown = user.get("/queues/limited/actions/limits").text
    for text in ('name="concurrency" value="5"', 'name="max" value="100"', 'name="duration_ms" value="60000"'):
        assert text in shown
    send(user, "/queues/limited/actions/limits", concurrency="", max="100", duration_ms="60000")
    assert (queue.limits().concurrency, queue.limits().max) == (None, 100)
    send(user, "/queues/limited/actions/limits", concurrency="", max="", duration_ms="")
    assert (queue.limits().concurrency, queue.limits().max) == (None, None)


def test_the_schedulers_of_all_queues_are_listed_with_their_last_and_next_run(site: Site, user: httpx.Client) -> None:
    for name in ("clock-a", "clock-b"):
        queue = site.queue(name)
        queue.upsert_scheduler("hourly", every=3_600_000)
        queue.upsert_scheduler("monthly", pattern="0 3 1 * *", tz="UTC")
        site.client.hset(queue.handle.keys.scheduler("monthly"), "ic", 2)
    site.client.hset(site.queue("clock-b").handle.keys.scheduler("hourly"), "ic", 2)
    site.forget_queues()
    shown = user.get("/schedulers?match=clock").text
    rows = re.findall(r'<tr id="scheduler-(clock-[^"]*)">(.*?)</tr>', shown, re.DOTALL)
    runs = r'data-label="(?:Last|Next) run">(?:<time datetime="([^"]*)"|<)'
    times: dict[str, list[str]] = {name: re.findall(runs, row) for name, row in rows}
    assert sorted(times) == ["clock-a/hourly", "clock-a/monthly", "clock-b/hourly", "clock-b/monthly"]
    assert (due := [next_run for _, next_run in times.values()]) == sorted(due)
    assert times["clock-a/hourly"][0] == ""
    first, second = (ms_of(moment_of(text)) for text in times["clock-b/hourly"])
    assert second - first == 3_600_000
    last, following = times["clock-a/monthly"]
    assert last[8:] == following[8:] == "01T03:00:00.000Z"
    assert last[:7] < following[:7]
    assert "No job schedulers in queues that match none-of-these" in user.get("/schedulers?match=none-of-these").text


def test_selected_jobs_of_several_queues_are_changed(site: Site, user: httpx.Client) -> None:
    one, two = site.queue("chosen/1"), site.queue("chosen-2")
    for queue in (one, two):
        for job_id in ("a/b", "c", "kept"):
            queue.add({}, job_id=job_id)
            queue.fail(job_id, "no route to host")
    site.forget_queues()
    names = re.findall(r'name="(/queues/chosen[^"]*)"', user.get("/jobs?match=chosen").text)
    assert len(names) == 6
    csrf = csrf_of(user, "/")

    def act(action: str, chosen: str, **fields: str) -> str:
        selected = {name: "yes" for name in names if name.endswith(chosen)}
        fields |= {"csrf": csrf, "back": "/jobs", "state": "failed"}
        return user.post(f"/jobs/actions/{action}", data=fields | selected).text

    assert "no job is selected" in act("retry", "nothing")
    assert "Retried 2 of 2 jobs" in act("retry", "/c")
    assert "Retried 0 of 2 jobs: 2 wrong state" in act("retry", "/c")
    asked = act("remove", "/a%2Fb")
    assert "Remove 2 selected jobs?" in asked
    assert 'name="/queues/chosen%2F1/jobs/a%2Fb" value="yes"' in asked
    assert one.counts()["failed"] == 2
    assert "Removed 2 of 2 jobs" in act("remove", "/a%2Fb", confirmed="yes")
    for queue in (one, two):
        assert (queue.counts()["failed"], queue.counts()["wait"]) == (1, 1)
        assert queue.job("a/b") is None
    refused = user.post("/jobs/actions/retry", data={names[0]: "yes"})
    assert refused.status_code == 403


def test_the_graph_of_a_flow_shows_all_its_jobs(site: Site, user: httpx.Client) -> None:
    pages = [FlowJob({}, job_id=f"page-{n}", children=[FlowJob({}, job_id=f"image-{n}")]) for n in range(3)]
    site.queue("atlas").add_flow(FlowJob({}, "bind", job_id="atlas", queue="atlas", children=pages))
    for job_id in ("atlas", "page-1", "image-2"):
        shown = user.get(f"/queues/atlas/jobs/{job_id}").text
        graph = shown[shown.index('<svg class="graph"') : shown.index("</section>", shown.index("<svg class"))]
        assert 'aria-label="Flow of 7 jobs"' in graph
        assert graph.count("<rect") == 7
        assert graph.count("<path") == 6
        assert re.findall(r'href="([^"]*)"[^>]*aria-current', graph) == [f"/queues/atlas/jobs/{job_id}"]
        places = re.findall(r'<rect x="([^"]*)" y="([^"]*)"', graph)
        assert len(set(places)) == 7
    with serving(url=site.redis_url, prefix=site.prefix, queues=("books-of",), read_token=None) as web:
        mixed = FlowJob({}, job_id="top", children=[FlowJob({}, "secret-name", job_id="below", queue="hidden")])
        site.queue("books-of").add_flow(mixed)
        shown = web.client.get("/queues/books-of/jobs/top").text
        assert "hidden / below" in shown
        assert "secret-name" not in shown


def test_the_page_of_the_api_has_all_operations_and_documents(site: Site, user: httpx.Client) -> None:
    answer = user.get("/api")
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    shown, described = answer.text, user.get("/api/openapi.json").json()
    for path, methods in described["paths"].items():
        for method in methods:
            assert f'id="{method.upper()}-{path}"' in shown
    ids = re.findall(r'id="([^"]*)"', shown)
    assert len(set(ids)) == len(ids)
    assert set(re.findall(r'href="#([^"]*)"', shown)) - {"content"} <= {*described["components"]["schemas"]} <= {*ids}
    for text in ("integer, 1 to 200", "default: 50", "list of", "with the same parameters", "429 Too many at once"):
        assert text in shown
    assert set(re.findall(r'(?:src|href)="(?!/|#)([^"]*)"', shown)) == set()


def test_pages_and_the_api_answer_head_as_get_without_a_body(site: Site, user: httpx.Client) -> None:
    site.queue("heads").add({})
    for path in ("/", "/queues/heads", "/login", "/static/page.css", "/api", "/api/queues", "/api/queues/heads/events"):
        head = user.head(path)
        assert (head.status_code, head.content) == (200, b""), path
        if not path.endswith("/events"):
            assert head.headers["content-type"] == user.get(path).headers["content-type"]
    assert user.head("/queues/nowhere").status_code == 404
    assert user.head("/api/queues/heads/pause").status_code == 405
    streams = site.web.server.app.state.streams
    wait_until(lambda: streams.open == 0, "the stream to end")


def test_a_number_that_is_too_long_is_refused(site: Site, user: httpx.Client) -> None:
    queue = site.queue("long")
    queue.add({})
    for grace in ("9" * 16, "9" * 5_000, "1.5", "²"):
        fields = {"csrf": csrf_of(user, "/queues/long"), "state": "wait", "grace": grace}
        answer = user.post("/queues/long/actions/clean", data=fields)
        assert (answer.status_code, "expected `grace`" in answer.text) == (400, True)
    assert queue.counts()["wait"] == 1


def test_without_redis_the_page_says_so(own_redis: Callable[..., EmbeddedRedis], sign_in: SignIn) -> None:
    redis = own_redis()
    BullQueue("away", url=redis.url).add({})
    with serving(url=redis.url) as web:
        user = sign_in(web.url, READ_TOKEN)
        assert user.get("/queues/away").status_code == 200
        redis.kill()
        answer = user.get("/queues/away")
    assert answer.status_code == 503
    assert "Redis does not answer" in answer.text
    assert "Try again" in answer.text


def test_only_those_who_may_write_see_buttons(site: Site, sign_in: SignIn) -> None:
    site.queue("tokens").add({}, delay=3_600_000)
    path = "/queues/tokens?state=delayed"
    with httpx.Client(base_url=site.url, follow_redirects=True) as visitor:
        assert visitor.get(path).url.path == "/login"
        assert "no such token" in visitor.post("/login", data={"token": "a wrong token"}).text
    pages = [(sign_in(site.url, READ_TOKEN).get(path).text, "signed in to read only")]
    for write_token, offered in ((WRITE_TOKEN, True), (None, False)):
        with serving(url=site.redis_url, prefix=site.prefix, read_token=None, write_token=write_token) as web:
            pages.append((web.client.get(path).text, "Sign in</a>" if offered else ""))
            assert ("Sign in</a>" in pages[-1][0]) == offered
    for page, text in pages:
        assert text in page
        assert "formaction" not in page
        assert "data-ask" not in page


def press(user: httpx.Client, path: str, name: str) -> str:
    """Presses a button of a page; one that asks gets its answer. Returns the next page."""
    page = user.get(path).text
    (button,) = {tag for tag in re.findall(r"<(?:a|button) [^>]*>", page) if name in tag}
    action = unescape(re.findall(r'(?:formaction|href)="([^"]*)"', button)[0])
    fields = {"csrf": csrf_of(user, path), "back": path}
    if "data-ask" in button:
        asked = user.get(action).text
        action = unescape(re.findall(r'class="ask" method="post" action="([^"]*)"', asked)[0])
        fields |= {one: unescape(value) for one, value in re.findall(r'name="(\w+)" value="([^"]*)"', asked)}
    return user.post(action, data=fields).text


def test_each_button_reaches_its_verb(site: Site, user: httpx.Client) -> None:
    queue = site.queue("buttons", protocol="bullmq")
    for job_id in ("failed-1", "failed-2", "failed-3", "gone"):
        queue.add({}, job_id=job_id)
        queue.fail(job_id, "no route to host")
    for job_id in ("later-1", "later-2", "later-3"):
        queue.add({}, job_id=job_id, delay=3_600_000)
    queue.upsert_scheduler("nightly", pattern="0 3 * * *", name="report")
    for scheduler, said in (("nightly", "was added, and runs"), ("none", "has no next job")):
        assert said in send(user, "/queues/buttons/actions/run-scheduler", scheduler=scheduler).text
    assert [job.name for job in queue.page("wait")] == ["report"]
    for path, name, said in (
        ("", 'id="pause"', "buttons is paused"),
        ("", 'id="resume"', "buttons is resumed"),
        ("/schedulers", 'aria-label="Remove job scheduler nightly"', "Job scheduler nightly was removed"),
        ("?state=failed", 'aria-label="Retry job failed-1"', "Job failed-1 waits"),
        ("?state=failed", 'aria-label="Remove job gone"', "Job gone was removed"),
        ("/jobs/failed-2", 'id="retry"', "Job failed-2 waits"),
        ("?state=failed", "retry-all", "The change has begun"),
        ("?state=delayed", 'aria-label="Promote job later-1"', "Job later-1 waits"),
        ("/jobs/later-2", 'id="promote"', "Job later-2 waits"),
        ("/jobs/later-2", 'id="remove"', "Job later-2 was removed"),
        ("?state=delayed", "promote-all", "The change has begun"),
    ):
        assert said in press(user, f"/queues/buttons{path}", name), name
    wait_until(lambda: {state: jobs for state, jobs in queue.counts().items() if jobs} == {"wait": 6}, "the changes")
    assert (queue.job("gone"), queue.job("later-2"), queue.schedulers()) == (None, None, [])
    # The job has changed since its page was shown.
    again = send(user, "/queues/buttons/jobs/later-1/actions/promote").text
    assert "Nothing was changed: expected job later-1 of queue buttons to be delayed" in again.replace("&#39;", "'")
    assert "Removed 0 jobs" in send(user, "/queues/buttons/actions/clean", state="wait", grace="3600000").text
    assert "Removed 6 jobs" in press(user, "/queues/buttons?state=wait", "actions/clean")
    queue.add({})
    assert "Removed 1 job from buttons" in press(user, "/queues/buttons", 'id="drain"')
    assert queue.counts()["wait"] == 0


def names_on(user: httpx.Client, path: str) -> list[str]:
    """The queues on a page of queues, in order."""
    return re.findall(r'<tr id="queue-\d+-([^"]*)"', user.get(path).text)


def test_the_queues_with_problems_come_first_on_the_first_of_several_pages(site: Site, user: httpx.Client) -> None:
    for number in range(52):
        with site.queue(f"calm-{number:02}") as queue:
            queue.complete(queue.add({}))
    old, failing, stalling = site.queue("calm-old"), site.queue("calm-z-failing"), site.queue("calm-z-stalling")
    old.add({}, timestamp=1_700_000_000_000)
    failing.fail(failing.add({}), "no such host")
    stalled_id = stalling.add({})
    work(stalling.handle, WorkSettings("slot"), None, 1)
    site.client.delete(f"{stalling.handle.keys.base}{stalled_id}:lock")
    site.forget_queues()
    wait_until(lambda: len(names_on(user, "/?match=calm")) == 50, "the queues to be found")
    urgent = ["calm-z-failing", "calm-z-stalling", "calm-old"]
    assert names_on(user, "/?match=calm")[:4] == [*urgent, "calm-00"]
    assert names_on(user, "/?match=calm&page=2") == [f"calm-{number:02}" for number in range(47, 52)]
    assert names_on(user, "/?match=calm&sort=name")[0] == "calm-00"
    assert names_on(user, "/?match=calm&sort=oldest")[0] == "calm-old"
    assert names_on(user, "/?match=calm&sort=active")[0] == "calm-z-stalling"
    for only, name in (("failed", urgent[0]), ("stalled", urgent[1]), ("no-workers", urgent[2])):
        assert names_on(user, f"/?match=calm&only={only}") == [name]
    assert "No queue is paused" in user.get("/?match=calm&only=paused").text
    old.pause()
    wait_until(lambda: names_on(user, "/?match=calm&only=paused") == ["calm-old"], "the pause to be seen")
    with Redis.from_url(site.redis_url, client_name=f"{failing.handle.keys.client_name}:w:ada") as worker:
        worker.ping()
        failing.add({})
        wait_until(lambda: 'data-label="workers">1<' in user.get("/?match=calm&only=failed").text, "the worker")
        assert names_on(user, "/?match=calm&only=no-workers") == []


def test_shards_have_a_row_with_their_sums(site: Site, user: httpx.Client) -> None:
    for number in range(3):
        site.queue(f"parts{{{number}}}").add_many(NewJob({}) for _ in range(number + 4))
    site.forget_queues()
    shown = user.get("/?match=parts").text
    assert "3 shards" in shown
    (row,) = re.findall(r'<tr id="queue-1-sum".*?</tr>', shown, re.DOTALL)
    assert ">15<" in row
    (href,) = re.findall(r'class="name" href="([^"]*)"', row)
    assert "parts{2}" in user.get(unescape(href)).text


def test_long_payloads_are_cut_and_can_be_read_whole(site: Site, user: httpx.Client) -> None:
    job_id = site.queue("lengthy").add({"text": "x" * 50_000, "last": "the end"})
    shown = user.get(f"/queues/lengthy/jobs/{job_id}").text
    assert "The first 4,000 of" in shown
    assert "the end" not in shown
    assert f'href="/queues/lengthy/jobs/{job_id}/raw/data"' in shown
    assert "the end" in user.get(f"/queues/lengthy/jobs/{job_id}/raw/data").text


def test_a_search_finds_jobs_by_id_name_text_and_time_page_by_page(site: Site, user: httpx.Client) -> None:
    queue = site.queue("search")
    queue.add_many(NewJob({"to": f"user{n}@example.org"}, "mail", f"mail-{n}") for n in range(60))
    queue.add({"to": "nobody"}, name="other", job_id="other-1", timestamp=1_700_000_000_000)

    def jobs_of(page: str) -> set[str]:
        return set(re.findall(r'<tr id="job-([^"]*)"', page))

    def found(query: str) -> set[str]:
        return jobs_of(user.get(f"/queues/search?state=wait&{query}").text)

    assert found("id=mail-7") == {"mail-7"}
    assert found("name=other") == {"other-1"}
    assert found("text=USER42@") == {"mail-42"}
    assert found("from=2023-11-14T00:00&to=2023-11-15T00:00") == {"other-1"}
    assert "No job of this page matches" in user.get("/queues/search?state=wait&text=nothing+has+this").text
    pages = [user.get("/queues/search?state=wait&name=mail").text]
    while following := re.search(r'rel="next" href="([^"]*)"', pages[-1]):
        pages.append(user.get(unescape(following[1])).text)
    assert len(pages) == 3
    assert set.union(*map(jobs_of, pages)) == {f"mail-{n}" for n in range(60)}
