// Keeps relative times, such as `5 min ago`, up to date. The server's clock counts.
const UNITS = [["d", 86_400_000], ["h", 3_600_000], ["min", 60_000], ["s", 1_000]];
const ahead = Number(document.documentElement.dataset.now) - Date.now();

/** isSpan: without `ago`, as the time that something has taken so far. */
function relative(ms, isSpan) {
  const now = Date.now() + ahead;
  const distance = Math.abs(ms - now);
  const unit = UNITS.find(([, size]) => distance >= size);
  if (!unit) return isSpan ? "0 s" : "now";
  const text = `${Math.floor(distance / unit[1]).toLocaleString("en")} ${unit[0]}`;
  if (isSpan) return text;
  return ms > now ? `in ${text}` : `${text} ago`;
}

export function updateTimes() {
  for (const time of document.querySelectorAll("time[data-relative]")) {
    const text = relative(Date.parse(time.dateTime), time.dataset.relative === "span");
    if (time.textContent !== text) time.textContent = text;
  }
}
