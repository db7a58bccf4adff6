"""The page of `spark-bull serve` in a real browser; what its buttons change is read from Redis."""

from __future__ import annotations

import json
from threading import Event

import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from spark_bull.core.model.jobs import NewJob
from spark_bull.core.model.read_jobs import FlowJob
from spark_bull.core.queue.manage.bulk import BulkChange
from tests.support.wait import wait_until
from tests.web.browser import DESKTOP, PHONE, Browser, violations
from tests.web.conftest import Site
from tests.web.views import VIEWS, fill, open_view

pytestmark = pytest.mark.browser

SCRIPT = "<script>window.attacked = true</script><img src=x onerror='window.attacked = true'>"


def test_the_keyboard_alone_finds_a_job_and_removes_it(browser: Browser, site: Site) -> None:
    queue = site.queue("keys")
    queue.add({}, job_id="one")
    queue.fail("one", "no route to host")
    site.forget_queues()
    browser.open("/")
    browser.press(Keys.TAB)
    assert browser.focused()["text"] == "Skip to content"
    browser.press(Keys.ENTER)
    browser.tab_to("keys")
    browser.press(Keys.ENTER)
    browser.wait_for("Failed jobs")
    browser.tab_to("Remove job one")
    browser.press(Keys.ENTER)
    browser.find("dialog")
    assert browser.focused()["text"] == "Cancel"
    browser.press(Keys.ESCAPE)
    wait_until(lambda: browser.count("dialog[open]") == 0, "the dialog to close")
    assert browser.focused()["label"] == "Remove job one"
    assert queue.job("one") is not None
    browser.press(Keys.ENTER)
    browser.find("dialog")
    browser.tab_to("Remove")
    browser.press(Keys.ENTER)
    browser.wait_for_notice("Job one was removed")
    assert browser.focused()["id"] == "notice"
    assert queue.job("one") is None


def test_a_form_in_a_dialog_keeps_what_was_typed_until_it_is_right(browser: Browser, site: Site) -> None:
    queue = site.queue("typed")
    queue.add({}, job_id="one")
    browser.open("/queues/typed?state=wait")
    browser.click("#add")
    # The keyboard is in the first field.
    browser.find("dialog textarea")
    browser.press(Keys.END, " and more", Keys.TAB, "mail", Keys.ENTER)
    browser.wait_for("to be JSON")
    assert browser.find("dialog input[name=name]").get_attribute("value") == "mail"
    data = browser.find("dialog textarea")
    data.clear()
    data.send_keys('{"to": "ada"}')
    browser.click("dialog button.primary")
    browser.wait_for_notice("was added")
    assert [job.data for job in queue.page("wait", name="mail")] == [{"to": "ada"}]
    # The console has the status 400.
    assert len(browser.errors()) == 1
    browser.open("/queues/typed/jobs/one")
    browser.click("#change")
    data = browser.find("dialog textarea")
    data.clear()
    data.send_keys("[1, 2]")
    browser.click("dialog button.primary")
    browser.wait_for_notice("Job one has changed: data")
    job = queue.job("one")
    assert job.data == [1, 2]


def test_a_queue_is_deleted_once_its_name_is_typed(browser: Browser, site: Site) -> None:
    site.queue("doomed").add({})
    browser.open("/queues/doomed")
    browser.click("#obliterate")
    browser.find("dialog")
    assert browser.focused()["text"] == "Cancel"
    browser.click("dialog button.primary")
    browser.wait_for("expected the name of the queue, doomed")
    browser.find("dialog input[name=confirm]").send_keys("doomed" + Keys.ENTER)
    browser.wait_for_notice("Queue doomed was deleted")
    assert browser.driver.current_url == f"{site.url}/"
    assert sum(site.queue("doomed").counts().values()) == 0
    # The console has the status 400.
    browser.errors()


def test_selected_jobs_stay_selected_while_the_page_changes(browser: Browser, site: Site) -> None:
    queue = site.queue("selected")
    for job_id in ("one", "two", "three"):
        queue.add({}, job_id=job_id)
        queue.fail(job_id, "no route to host")
    browser.open("/queues/selected?state=failed")
    browser.click("input[aria-label='Select job one']")
    queue.add({}, job_id="four")
    queue.fail("four", "no route to host")
    browser.find("[id='job-four']")
    chosen = "return [...document.querySelectorAll('tbody input:checked')].map((box) => box.ariaLabel)"
    assert browser.driver.execute_script(chosen) == ["Select job one"]
    browser.click("#retry-selected")
    browser.wait_for_notice("Retried 1 of 1 jobs")
    browser.click("[data-select-all]")
    browser.click("#remove-selected")
    browser.wait_for("Remove 3 selected jobs?")
    browser.click("dialog button.primary")
    browser.wait_for_notice("Removed 3 of 3 jobs")
    assert (queue.counts()["failed"], queue.counts()["wait"]) == (0, 1)


def test_all_jobs_with_a_reason_are_retried_or_the_retry_is_aborted(
    browser: Browser, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue, going, find = site.queue("filtered"), Event(), BulkChange._find
    for job_id, reason in (("one", "a timeout"), ("two", "Timeout"), ("three", "no route to host")):
        queue.add({}, job_id=job_id)
        queue.fail(job_id, reason)
    monkeypatch.setattr(BulkChange, "_find", lambda change, found: going.wait() and find(change, found))
    browser.open("/queues/filtered?state=failed")
    browser.click("#search summary")
    browser.find("input[name=reason]").send_keys("TIMEOUT" + Keys.ENTER)
    browser.wait_for("Retry all found")
    found = browser.driver.current_url.removeprefix(site.url)
    browser.click("a[href*=retry-all]")
    browser.wait_for("Retry 2 failed jobs?")
    browser.click("dialog button.primary")
    browser.wait_for_notice("The change has begun")
    browser.wait_for("none is changed yet")
    assert violations(browser.driver) == []
    browser.click("#abort")
    browser.wait_for_notice("The write is aborted: 0 jobs changed")
    browser.open(found)
    browser.click("a[href*=retry-all]")
    browser.wait_for("Only jobs with the reason TIMEOUT")
    browser.click("dialog button.primary")
    browser.wait_for("none is changed yet")
    going.set()
    browser.wait_for("2 of 2 jobs are processed")
    assert browser.count("#abort") == 0
    assert violations(browser.driver) == []
    assert (queue.counts()["failed"], queue.counts()["wait"]) == (1, 2)


#: Keeps the answers to refreshes from the page, until `release` is called.
HOLD_REFRESHES = """
const real = window.fetch;
window.held = [];
window.fetch = async (url, options) => {
  const answer = await real(url, options);
  if (options?.headers?.["x-refresh"]) await new Promise((release) => window.held.push(release));
  return answer;
};
"""


def test_a_refresh_from_before_a_form_does_not_undo_what_the_form_shows(browser: Browser, site: Site) -> None:
    queue = site.queue("late")
    for job_id in ("one", "two"):
        queue.add({}, job_id=job_id)
        queue.fail(job_id, "no route to host")
    browser.open("/queues/late?state=failed")
    browser.driver.execute_script(HOLD_REFRESHES)
    queue.add({}, job_id="three")
    wait_until(lambda: browser.driver.execute_script("return held.length") == 1, "a refresh")
    browser.click("input[aria-label='Select job one']")
    browser.click("#retry-selected")
    browser.wait_for_notice("Retried 1 of 1 jobs")
    browser.driver.execute_script("held[0]()")
    # A refresh begins when the one before is over.
    wait_until(lambda: browser.driver.execute_script("return held.length") == 2, "the next refresh")
    shown = "return [...document.querySelectorAll('[id^=job-]')].map((row) => row.id)"
    assert browser.driver.execute_script(shown) == ["job-two"]


def test_texts_of_jobs_are_never_markup(browser: Browser, site: Site) -> None:
    name = f"hostile {SCRIPT}"
    queue = site.queue(name)
    job_id = queue.add({"text": SCRIPT}, name=SCRIPT, job_id=f"{SCRIPT}/1")
    site.client.rpush(queue.handle.keys.logs(job_id), SCRIPT)
    queue.fail(job_id, SCRIPT)
    site.client.hset(
        queue.handle.keys.job(job_id),
        mapping={"stacktrace": json.dumps([SCRIPT]), "returnvalue": json.dumps(SCRIPT), "progress": json.dumps(SCRIPT)},
    )
    site.forget_queues()
    browser.open("/")
    browser.click("#queues a.name[href*='hostile']")
    browser.wait_for("Failed jobs")
    assert browser.text.count(SCRIPT) >= 4
    browser.click("#jobs td a")
    browser.wait_for("Timeline")
    browser.click("#stacktrace summary")
    # Name, id, reason, data, result, progress, stack trace and log.
    assert browser.text.count("window.attacked") >= 8
    browser.click("#remove")
    browser.wait_for("Its data, result and log")
    assert browser.driver.execute_script("return window.attacked") is None
    assert browser.count("main script, main img, dialog script, dialog img") == 0


def test_the_page_follows_the_queue(browser: Browser, site: Site) -> None:
    queue = site.queue("live")
    queue.add({}, job_id="first")
    site.forget_queues()
    browser.open("/queues/live?state=wait")
    browser.wait_for("first")
    queue.add({}, job_id="second")
    browser.wait_for("second")
    browser.click("#search summary")
    queue.remove("first")
    wait_until(lambda: browser.count("[id='job-first']") == 0, "the removed job to disappear")
    assert browser.driver.find_element(By.ID, "search").get_attribute("open") is not None
    wait_until(lambda: browser.count(".chart canvas"), "a chart")
    browser.open("/queues/live/jobs/second")
    queue.remove("second")
    browser.wait_for("expected a job second in queue live, found none")
    # The console has the status 404.
    browser.errors()


def test_legends_show_the_newest_numbers_before_anyone_points_at_a_chart(browser: Browser, site: Site) -> None:
    queue = site.queue("legend")
    queue.add_many(NewJob({"n": n}) for n in range(3))
    site.forget_queues()
    browser.open("/queues/legend?state=wait")
    script = "return [...document.querySelectorAll('.u-series')].map((series) => series.textContent)"
    wait_until(lambda: "wait3" in browser.driver.execute_script(script), "the newest number in the legend")
    queue.add({})
    wait_until(lambda: "wait4" in browser.driver.execute_script(script), "the next number in the legend")


def test_states_and_their_numbers_have_a_line_each_on_a_phone(browser: Browser, site: Site) -> None:
    queue = site.queue("tiles")
    for n in range(12):
        queue.add_flow(FlowJob({}, job_id=f"book-{n}", children=[FlowJob({})]))
    browser.show_on(PHONE, "light")
    browser.open("/queues/tiles")
    browser.wait_for("waiting-children")
    lines = "return [...document.querySelectorAll('#states span')].map((s) => [s.textContent, s.offsetHeight])"
    heights = dict(browser.driver.execute_script(lines))
    assert heights["12"] == heights["0"]
    assert heights["waiting-children"] == heights["wait"]


def test_a_queue_has_three_figures_on_a_phone(browser: Browser, site: Site) -> None:
    site.queue("figures").add({})
    site.forget_queues()
    script = "return [...document.querySelectorAll('#queues tbody tr:last-child td')].filter((e) => e.offsetHeight)"
    for size, figures in ((PHONE, 3), (DESKTOP, 10)):
        browser.show_on(size, "light")
        browser.open("/?match=figures")
        assert len(browser.driver.execute_script(script)) == figures


@pytest.mark.rest
def test_pages_fit_a_desktop_and_a_phone(browser: Browser, site: Site) -> None:
    fill(site)
    for name, path in VIEWS.items():
        for size in (DESKTOP, PHONE):
            browser.show_on(size, "light")
            open_view(browser, path)
            for theme in ("light", "dark"):
                browser.show_on(size, theme)
                width, shown = browser.driver.execute_script(
                    "return [document.documentElement.scrollWidth, document.documentElement.clientWidth]"
                )
                assert width <= shown, f"{name} is wider than the screen of {size}"
                browser.picture(f"{name}-{theme}-{'phone' if size == PHONE else 'desktop'}")
