// Replaces parts of the page by the same parts of a new document, and keeps what the user has opened or focused.
import { updateCharts } from "./charts.js";
import { updateTimes } from "./times.js";

const callbacks = {
  beforeNodeMorphed: (old) => !old.hasAttribute?.("data-keep"),
  beforeAttributeUpdated: (name, node) => !(name === "open" && node.localName === "details"),
};

function parsed(html) {
  return new DOMParser().parseFromString(html, "text/html");
}

/** Replaces the parts with `data-live`; one whose button is under the pointer waits, so that no click misses. */
export function morphLive(html) {
  const next = parsed(html);
  for (const part of document.querySelectorAll("[data-live]")) {
    const other = next.getElementById(part.id);
    if (other && !part.querySelector("button:hover, a.button:hover")) Idiomorph.morph(part, other, { callbacks });
  }
  updateTimes();
  updateCharts();
}

/** Replaces the whole content; returns whether there is another one. */
export function morphMain(html) {
  const next = parsed(html);
  const main = next.querySelector("main");
  if (!main) return false;
  document.title = next.title;
  Idiomorph.morph(document.querySelector("main"), main, { callbacks });
  updateTimes();
  updateCharts();
  return true;
}
