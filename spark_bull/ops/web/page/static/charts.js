// Draws the data of each element with `data-chart`: {"times": [s, …], "series": [{"label", "state", "values"}, …]}.
const HEIGHT = 190;
const charts = new Map();

function color(name) {
  // Only the colour of an element is resolved by its colour scheme, not a custom property.
  const probe = document.createElement("span");
  probe.style.color = `var(--${name})`;
  document.body.append(probe);
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
}

function size(element) {
  return { width: element.clientWidth, height: HEIGHT };
}

function axis(extra) {
  return {
    stroke: color("muted"),
    grid: { stroke: color("line"), width: 1 },
    ticks: { stroke: color("line"), width: 1 },
    font: "12px system-ui, sans-serif",
    ...extra,
  };
}

// A value of the legend: that under the pointer, else the newest one.
function legend(show) {
  return (plot, value, series, index) => {
    const shown = index == null ? plot.data[series].at(-1) : value;
    return shown == null ? "–" : show(shown);
  };
}

function labels(plot) {
  // The first label is for the times.
  return [...plot.root.querySelectorAll(".u-legend .u-label")].slice(1);
}

// uPlot hides and shows a line when its label is clicked; with this, keys do, too.
function makeOperable(plot) {
  for (const label of labels(plot)) {
    label.tabIndex = 0;
    label.role = "button";
    label.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      label.click();
    });
  }
  showPressed(plot);
}

function showPressed(plot) {
  for (const [at, label] of labels(plot).entries()) label.ariaPressed = plot.series[at + 1].show;
}

function options(element, chart) {
  const clock = uPlot.fmtDate("{HH}:{mm}:{ss}");
  return {
    ...size(element),
    cursor: { drag: { setScale: false } },
    hooks: { ready: [makeOperable], setSeries: [showPressed] },
    scales: { y: { range: (_, low, high) => [0, Math.max(4, high * 1.1)] } },
    axes: [
      axis({ space: 90, values: [
        [3600, "{HH}:{mm}", null, null, null, null, null, null, 1],
        [60, "{HH}:{mm}", null, null, null, null, null, null, 1],
        [1, "{HH}:{mm}:{ss}", null, null, null, null, null, null, 1],
      ] }),
      axis({ size: 56, values: (_, ticks) => ticks.map((tick) => (tick % 1 ? "" : tick.toLocaleString("en"))) }),
    ],
    series: [
      { label: "Time", value: legend((time) => clock(new Date(time * 1000))) },
      ...chart.series.map(({ label, state }) => ({
        label,
        stroke: color(state),
        width: 2,
        points: { show: chart.times.length < 2 },
        value: legend((value) => value.toLocaleString("en")),
      })),
    ],
  };
}

function draw(element, isNew) {
  const chart = JSON.parse(element.dataset.chart);
  const data = [chart.times, ...chart.series.map((series) => series.values)];
  const canvas = element.querySelector("[data-keep]");
  const known = charts.get(element);
  if (known && !isNew && known.data.length === data.length) {
    known.setData(data);
    return;
  }
  known?.destroy();
  charts.set(element, new uPlot(options(canvas, chart), data, canvas));
}

function drawAll(isNew) {
  for (const element of charts.keys()) {
    if (!element.isConnected) {
      charts.get(element).destroy();
      charts.delete(element);
    }
  }
  for (const element of document.querySelectorAll("[data-chart]")) draw(element, isNew);
}

export const updateCharts = () => drawAll(false);
export const redrawCharts = () => drawAll(true);

export function startCharts() {
  updateCharts();
  addEventListener("resize", () => {
    for (const [element, plot] of charts) plot.setSize(size(element.querySelector("[data-keep]")));
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redrawCharts);
}
