// Sends forms without leaving the page, and shows pages that ask for a confirmation in a dialog.
import { morphMain } from "./morph.js";
import { whileSending } from "./sending.js";

const dialog = document.getElementById("dialog");

/** Shows the form of a page that asks; returns whether there is one. */
function showAsking(html) {
  const ask = new DOMParser().parseFromString(html, "text/html").querySelector(".ask:not([data-plain])");
  if (!ask) return false;
  if (dialog.open) dialog.close();
  dialog.replaceChildren(document.adoptNode(ask));
  dialog.setAttribute("aria-labelledby", "ask-title");
  dialog.showModal();
  return true;
}

async function open(link) {
  const answer = await fetch(link.href, { headers: { accept: "text/html" } });
  if (!showAsking(await answer.text())) location.assign(link.href);
}

function say(text) {
  const notice = document.getElementById("notice") ?? document.createElement("div");
  Object.assign(notice, { id: "notice", className: "notice", tabIndex: -1, textContent: text, role: "alert" });
  notice.dataset.kind = "error";
  document.querySelector("main").prepend(notice);
}

async function send(form, button) {
  const url = button?.getAttribute("formaction") ?? form.getAttribute("action");
  // A button that is disabled sends no value.
  const body = new URLSearchParams(new FormData(form, button));
  button?.setAttribute("disabled", "");
  try {
    const answer = await fetch(url, {
      method: "POST",
      body,
      headers: { accept: "text/html" },
    });
    const html = await answer.text();
    // It asks first, or a field is wrong.
    if (showAsking(html)) return;
    if (dialog.open) dialog.close();
    if (answer.redirected) history.replaceState(null, "", answer.url);
    if (!morphMain(html)) say("The server has failed: its log has the error.");
    document.getElementById("notice")?.focus();
  } catch {
    if (dialog.open) dialog.close();
    say("The server does not answer. Load the page again to see whether anything was changed.");
  } finally {
    button?.removeAttribute("disabled");
  }
}

/** Shows the boxes that select all jobs of a list, which need a script. */
function showSelectAll() {
  for (const all of document.querySelectorAll("[data-select-all]")) all.hidden = false;
}

export function startForms() {
  showSelectAll();
  document.addEventListener("change", (event) => {
    if (!event.target.hasAttribute("data-select-all")) return;
    const boxes = event.target.form.querySelectorAll("tbody input[type=checkbox]");
    for (const box of boxes) box.checked = event.target.checked;
  });
  document.addEventListener("click", (event) => {
    const link = event.target.closest("a[data-ask]");
    if (link && !event.ctrlKey && !event.metaKey && !event.shiftKey) {
      event.preventDefault();
      open(link);
    } else if (dialog.open && event.target.closest("[data-cancel]")) {
      event.preventDefault();
      dialog.close();
    }
  });
  document.addEventListener("submit", (event) => {
    const form = event.target;
    if (form.method !== "post" || form.hasAttribute("data-plain")) return;
    event.preventDefault();
    whileSending(() => send(form, event.submitter));
  });
}
