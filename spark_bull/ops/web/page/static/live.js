// Loads the live parts again when the server sends an event, but waits in between, longer if the server is slow.
import { morphLive, morphMain } from "./morph.js";
import { formsSent, isSending } from "./sending.js";

const PAUSE_MS = 1_000;
const WAIT_PER_LOAD = 4;
// Rates and times change without events, and not all queues have some.
const POLL_MS = 5_000;
const LABELS = { on: "Live", poll: "Every 5 s", lost: "Offline" };
let isWaiting = false;
let isDirty = false;

function show(state) {
  const status = document.getElementById("live");
  status.hidden = false;
  if (status.dataset.live !== state) status.textContent = LABELS[state];
  status.dataset.live = state;
}

async function load() {
  const url = location.href;
  const before = formsSent();
  const answer = await fetch(url, { headers: { accept: "text/html", "x-refresh": "1" } });
  const page = await answer.text();
  // No form is being sent when a refresh begins.
  if (before !== formsSent() || url !== location.href) return answer.status;
  // The session has ended.
  if (answer.redirected) location.assign(answer.url);
  else if (answer.ok) morphLive(page);
  // The job or queue is gone.
  else if (answer.status === 404) morphMain(page);
  return answer.status;
}

async function refresh(state) {
  if (document.hidden || isWaiting || isSending()) {
    isDirty = true;
    return;
  }
  isWaiting = true;
  isDirty = false;
  const start = performance.now();
  try {
    show((await load()) < 500 ? state : "lost");
  } catch {
    show("lost");
  }
  setTimeout(() => {
    isWaiting = false;
    if (isDirty) refresh(state);
  }, Math.max(PAUSE_MS, WAIT_PER_LOAD * (performance.now() - start)));
}

export function startLive() {
  const main = document.querySelector("main");
  if (!main.hasAttribute("data-events")) return;
  setInterval(() => refresh(state), POLL_MS);
  document.addEventListener("visibilitychange", () => isDirty && refresh(state));
  let state = "poll";
  const url = main.dataset.events;
  if (!url) return;
  state = "on";
  const source = new EventSource(url);
  source.addEventListener("open", () => refresh(state));
  source.addEventListener("message", () => refresh(state));
  source.addEventListener("error", () => {
    // A browser tries again by itself, unless the server has refused.
    if (source.readyState !== EventSource.CLOSED) show("lost");
    else state = "poll";
  });
}
