"""Finds what makes a page hard to use for people with disabilities, by the rules of axe-core."""

from __future__ import annotations

from selenium import webdriver

from tests.support.node import NODE_DIRECTORY
from tests.support.wait import PATIENCE_S

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
