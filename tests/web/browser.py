"""Chromium without a window, as the user of a web page."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from selenium import webdriver
from selenium.common.exceptions import (
    ElementClickInterceptedException,
    ElementNotInteractableException,
    JavascriptException,
    StaleElementReferenceException,
)
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement

from tests.support.node import NODE_DIRECTORY
from tests.support.wait import PATIENCE_S, wait_until

T = TypeVar("T")
#: Pictures of pages, which `make clean` deletes.
PICTURES = Path(__file__).parents[2] / "artifacts" / "page"
DESKTOP, PHONE = (1280, 900), (390, 844)
#: Tabs until the tests give up looking for an element.
_MOST_TABS = 200
_ROOT = 0
#: Errors of steps on an element that the browser is replacing.
BEING_REPLACED = (
    ElementClickInterceptedException,
    ElementNotInteractableException,
    JavascriptException,
    StaleElementReferenceException,
)


def programs() -> tuple[str | None, str | None]:
    """Paths of chromium and of its driver, or None."""
    names = ("chromium", "chromium-browser", "google-chrome")
    return next(filter(None, map(shutil.which, names)), None), shutil.which("chromedriver")


@contextmanager
def chromium() -> Iterator[webdriver.Chrome]:
    """A browser; both programs must exist, so that selenium downloads nothing."""
    browser, driver = programs()
    options = webdriver.ChromeOptions()
    options.binary_location = browser or ""
    arguments = ["--headless=new", "--disable-gpu", "--disable-dev-shm-usage", "--lang=en-US"]
    for argument in (*arguments, *(["--no-sandbox"] if os.geteuid() == _ROOT else [])):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    with webdriver.Chrome(options, Service(driver)) as opened:
        opened.set_page_load_timeout(PATIENCE_S)
        yield opened


def until(condition: Callable[[], T | None], what: str) -> T:
    """Waits for a condition, which may find elements that the browser is just replacing."""

    def met() -> T | None:
        try:
            return condition()
        except BEING_REPLACED:
            return None

    met_at_last = wait_until(met, what)
    assert met_at_last is not None
    return met_at_last


class Browser:
    """What a user does with the pages of one server, and sees of them."""

    def __init__(self, driver: webdriver.Chrome, url: str) -> None:
        self.driver = driver
        self.url = url
        self._scripts = True

    def start(self) -> None:
        """Begins as a new user, on a desktop."""
        self.use_scripts(True)
        self.driver.delete_all_cookies()
        self.show_on(DESKTOP, "light")
        self.errors()
        self.driver.get_log("performance")

    def open(self, path: str) -> None:
        """Loads a page. The driver sometimes returns before the old one is gone."""
        if not self._scripts:
            self.driver.get(self.url + path)
            return
        self.driver.execute_script("window.isOld = true")
        self.driver.get(self.url + path)
        loaded = "return !window.isOld && document.readyState === 'complete'"
        wait_until(lambda: self.driver.execute_script(loaded), f"the page {path}")

    def sign_in(self, token: str) -> None:
        self.open("/login")
        self.driver.find_element(By.NAME, "token").send_keys(token + Keys.ENTER)
        self.wait_for("Queues")

    def use_scripts(self, used: bool) -> None:
        self._scripts = used
        self.driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": not used})

    def show_on(self, size: tuple[int, int], theme: str) -> None:
        """The size of the screen, and whether the system is light or dark."""
        screen = {"width": size[0], "height": size[1], "deviceScaleFactor": 1, "mobile": size == PHONE}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
        self.driver.execute_cdp_cmd(
            "Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": theme}]}
        )

    def find(self, selector: str) -> WebElement:
        """Waits for an element that can be seen."""

        def visible() -> WebElement | None:
            found = self.driver.find_elements(By.CSS_SELECTOR, selector)
            return next((element for element in found if element.is_displayed()), None)

        return until(visible, f"{selector} on {self.driver.current_url}")

    def count(self, selector: str) -> int:
        return len(self.driver.find_elements(By.CSS_SELECTOR, selector))

    def click(self, selector: str) -> None:
        """Clicks an element, again if the page has replaced it meanwhile."""

        def clicked() -> bool:
            self.find(selector).click()
            return True

        until(clicked, f"a click on {selector}")

    @property
    def text(self) -> str:
        """What can be read on the page."""
        found: str = self.driver.execute_script("return document.body.innerText")
        return found

    def wait_for(self, text: str) -> None:
        until(lambda: text in self.text, f"{text!r} on {self.driver.current_url}")

    def wait_for_notice(self, text: str) -> None:
        until(lambda: text in self.find("#notice").text, f"the notice {text!r}")

    def press(self, *keys: str) -> None:
        for key in keys:
            ActionChains(self.driver).send_keys(key).perform()

    def focused(self) -> dict[str, str]:
        """The element that has the focus: `text`, and `label` for screen readers."""
        script = """const e = document.activeElement;
            return {text: e.textContent.trim(), label: e.getAttribute('aria-label') || '', id: e.id,
                    outline: getComputedStyle(e).outlineStyle}"""
        found: dict[str, str] = self.driver.execute_script(script)
        return found

    def tab_to(self, name: str) -> None:
        """Presses Tab until an element of this text or label has the focus, which must be visible."""
        for _ in range(_MOST_TABS):
            found = self.focused()
            if name in (found["text"], found["label"]):
                assert found["outline"] != "none", f"the focus on {name} can't be seen"
                return
            self.press(Keys.TAB)
        raise AssertionError(f"{name} can't be reached by Tab on {self.driver.current_url}")

    def picture(self, name: str) -> None:
        PICTURES.mkdir(parents=True, exist_ok=True)
        self.driver.save_screenshot(str(PICTURES / f"{name}.png"))

    def errors(self) -> list[str]:
        """Errors in the console since the last call."""
        return [str(entry["message"]) for entry in self.driver.get_log("browser") if entry["level"] == "SEVERE"]

    def hosts(self) -> set[str]:
        """The hosts that the pages have sent requests to since the last call."""
        messages = [json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")]
        return {urlsplit(url).netloc for message in messages if (url := _url_of(message)).startswith(("http", "ws"))}


def _url_of(message: dict[str, Any]) -> str:
    is_request = message["method"] == "Network.requestWillBeSent"
    return str(message["params"]["request"]["url"]) if is_request else ""


_AXE = NODE_DIRECTORY / "node_modules" / "axe-core" / "axe.min.js"
_RUN = """
const done = arguments[arguments.length - 1];
// Colours that are still changing have less contrast.
document.getAnimations().forEach((animation) => animation.finish());
axe.run(document, {resultTypes: ["violations"]}).then(
  ({violations}) => done(violations.map((rule) => `${rule.id} (${rule.help}): ` + rule.nodes.map(
    (node) => `${node.target.join(" ")} ${node.failureSummary}`).join("; "))),
  (error) => done([String(error)]));
"""


def violations(driver: webdriver.Chrome) -> list[str]:
    """The rules that the open page violates, with the elements that do."""
    driver.set_script_timeout(PATIENCE_S)
    driver.execute_script(_AXE.read_text("utf-8"))
    found: list[str] = driver.execute_async_script(_RUN)
    return found
