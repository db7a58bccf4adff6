"""All views of the page can be used with a screen reader, the keyboard alone, a magnified page, or without motion."""

from __future__ import annotations

import pytest
from selenium.webdriver.common.keys import Keys

from tests.support.wait import wait_until
from tests.support.web import WRITE_TOKEN
from tests.web.browser import DESKTOP, Browser, violations
from tests.web.conftest import Site
from tests.web.views import VIEWS, fill, open_view

pytestmark = pytest.mark.browser

#: What a desktop shows at 200 % and 400 %, and a page must fit without scrolling to the side (WCAG 1.4.10).
MAGNIFIED = ((DESKTOP[0] // 2, DESKTOP[1] // 2), (DESKTOP[0] // 4, DESKTOP[1] // 4))

#: The elements whose content is cut. Previews of payloads are, as they are links to the whole.
CUT = """return [...document.querySelectorAll("main *, header *")].filter((e) => {
    const {overflowX, overflowY} = getComputedStyle(e);
    const hides = [overflowX, overflowY].some((one) => one === "hidden" || one === "clip");
    const cuts = e.scrollWidth > e.clientWidth + 1 || e.scrollHeight > e.clientHeight + 1;
    return hides && cuts && e.clientWidth > 1 && !e.closest("td.preview, .u-wrap, svg");
}).map((e) => e.outerHTML.slice(0, 200))"""

#: What cannot be reached or operated by keys, or does not show that it has the focus.
UNREACHABLE = """
const keys = "a[href], button, input, select, textarea, summary, [tabindex]";
const isMissed = (e) => {
    e.focus({focusVisible: true});
    const isShown = getComputedStyle(e).outlineStyle !== "none"
        || [...e.querySelectorAll("rect")].some((rect) => getComputedStyle(rect).strokeWidth === "4px");
    return document.activeElement !== e || !isShown || e.tabIndex !== 0;
};
const all = [...document.querySelectorAll("body *")].filter((e) => e.checkVisibility());
// The page moves the focus to these, where nothing can be operated.
const controls = all.filter((e) => e.matches(keys) && !e.disabled && !e.matches("main, .notice"));
const forMice = all.filter(
    (e) => getComputedStyle(e).cursor === "pointer" && !e.closest(keys) && !e.querySelector(keys));
return [...controls.filter(isMissed), ...forMice].map((e) => e.outerHTML.slice(0, 200))"""

LESS_MOTION = {"features": [{"name": "prefers-reduced-motion", "value": "reduce"}]}
#: What moves.
MOVING = """return [...document.querySelectorAll("*")].filter((e) => {
    const {transitionDuration, animationName, scrollBehavior} = getComputedStyle(e);
    return transitionDuration !== "0s" || animationName !== "none" || scrollBehavior === "smooth";
}).map((e) => e.outerHTML.slice(0, 200))"""


def test_each_view_passes_axe_can_be_used_by_keys_and_rests_for_those_who_want_less_motion(
    visitor: Browser, site: Site
) -> None:
    fill(site)
    found: dict[tuple[str, str], object] = {}

    def examine(name: str) -> None:
        for theme in ("light", "dark"):
            visitor.show_on(DESKTOP, theme)
            found[name, theme] = violations(visitor.driver)

    visitor.open("/login")
    examine("login")
    visitor.sign_in(WRITE_TOKEN)
    for name, path in {**VIEWS, "missing": "/queues/missing"}.items():
        open_view(visitor, path)
        examine(name)
        found[name, "out of reach of keys"] = visitor.driver.execute_script(UNREACHABLE)
        visitor.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", LESS_MOTION)
        found[name, "moving"] = visitor.driver.execute_script(MOVING)
    open_view(visitor, VIEWS["queue"])
    visitor.click("a[aria-label='Remove job report-5']")
    visitor.find("dialog")
    examine("dialog")
    assert {view: wrong for view, wrong in found.items() if wrong} == {}
    # That of the page of a queue that is missing.
    assert all("404" in error for error in visitor.errors())


def test_each_view_can_be_magnified(browser: Browser, site: Site) -> None:
    fill(site)
    wrong = []
    for size in MAGNIFIED:
        browser.show_on(size, "light")
        for name, path in VIEWS.items():
            open_view(browser, path)
            width, shown = browser.driver.execute_script(
                "return [document.documentElement.scrollWidth, document.documentElement.clientWidth]"
            )
            cut = browser.driver.execute_script(CUT)
            if width > shown or cut:
                wrong.append((name, size, width, cut))
    assert wrong == []


def test_keys_hide_and_show_a_line_of_a_chart(browser: Browser, site: Site) -> None:
    fill(site)
    open_view(browser, VIEWS["queue"])
    label = ".u-label[role=button]"
    browser.find(label)
    browser.driver.execute_script(f"document.querySelector('{label}').focus()")
    for key, pressed in ((Keys.SPACE, "false"), (Keys.ENTER, "true")):
        browser.press(key)
        wait_until(lambda pressed=pressed: browser.count(f"{label}[aria-pressed={pressed}]:focus"), "the other state")
        assert (browser.count(".u-series.u-off") == 1) is (pressed == "false")
