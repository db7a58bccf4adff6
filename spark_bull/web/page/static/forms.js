// Sends forms without leaving the page, and shows pages that ask for a confirmation in a dialog.
import { morphMain } from "./morph.js";
import { whileSending } from "./sending.js";

const dialog = document.getElementById("dialog");

async function open(link) {
  const answer = await fetch(link.href, { headers: { accept: "text/html" } });
  const next = new DOMParser().parseFromString(await answer.text(), "text/html");
  const ask = next.querySelector(".ask");
  if (!ask) {
    location.assign(link.href);
    return;
  }
  dialog.replaceChildren(document.adoptNode(ask));
  dialog.setAttribute("aria-labelledby", "ask-title");
  dialog.showModal();
}

function say(text) {
  const notice = document.getElementById("notice") ?? document.createElement("div");
  Object.assign(notice, { id: "notice", className: "notice", tabIndex: -1, textContent: text, role: "alert" });
  notice.dataset.kind = "error";
  document.querySelector("main").prepend(notice);
}

async function send(form, button) {
  const url = button?.getAttribute("formaction") ?? form.getAttribute("action");
  button?.setAttribute("disabled", "");
  try {
    const answer = await fetch(url, {
      method: "POST",
      body: new URLSearchParams(new FormData(form, button)),
      headers: { accept: "text/html" },
    });
    const html = await answer.text();
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

export function startForms() {
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
