// Draws the charts whose data lie in the page. Plotly is loaded when the first one comes near the
// viewport; a page without a chart never loads it.
"use strict";

const { plotly: source, marks } = document.currentScript.dataset;
const dark = matchMedia("(prefers-color-scheme: dark)");
const config = { displayModeBar: false, responsive: true, doubleClick: "reset", showTips: false };
let loading = null;

function load() {
  loading ??= new Promise((done, failed) => {
    // Style sheets of parts that are not used, which the policy would refuse, pass for being there.
    for (const id of marks.split(" ")) document.head.append(Object.assign(document.createElement("meta"), { id }));
    const script = document.createElement("script");
    script.src = source;
    script.onload = () => done(window.Plotly);
    script.onerror = () => failed(new Error("the chart library did not load"));
    document.head.append(script);
  });
  return loading;
}

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

// Plotly reads a little HTML in texts; names of models and series are texts and nothing else.
function plain(text) {
  return text.replaceAll("&", "&amp;").replaceAll("<", "&lt;");
}

function dataOf(place) {
  const data = document.querySelector(`script[data-chart-of="${CSS.escape(place.dataset.chart)}"]`);
  return JSON.parse(data.textContent);
}

function trace(series, index, chart) {
  const paint = colour(`--series-${1 + (index % 6)}`);
  const labelled = series.labels.length > 0;
  const point = `${chart.x.title} %{x:.5~g}<br>${chart.y.title} %{y:.5~g}`;
  return {
    type: "scatter",
    mode: series.mode,
    name: plain(series.name),
    x: series.x,
    y: series.y,
    text: series.labels.map(plain),
    customdata: series.links,
    hovertemplate: `${labelled ? "%{text}<br>" : ""}${point}<extra></extra>`,
    line: { color: paint, width: series.mode === "lines" ? 1.5 : 2, dash: series.mode === "lines" ? "dot" : "solid" },
    marker: { color: paint, size: labelled ? 10 : 5 },
  };
}

function axis(wanted) {
  return {
    title: { text: plain(wanted.title) },
    type: wanted.logarithmic ? "log" : "linear",
    gridcolor: colour("--chart-grid"),
    linecolor: colour("--chart-grid"),
    zeroline: false,
    automargin: true,
    exponentformat: "e",
  };
}

function layout(chart) {
  return {
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: { color: colour("--chart-ink"), family: "inherit", size: 13 },
    margin: { l: 56, r: 16, t: 12, b: 48 },
    hovermode: "closest",
    dragmode: "zoom",
    showlegend: chart.series.length > 1,
    legend: { orientation: "h", y: 1.02, yanchor: "bottom", x: 0 },
    xaxis: axis(chart.x),
    yaxis: axis(chart.y),
  };
}

async function draw(place) {
  const chart = dataOf(place);
  try {
    const plotly = await load();
    if (!place.isConnected) return;
    const traces = chart.series.map((series, index) => trace(series, index, chart));
    await plotly.react(place, traces, layout(chart), config);
    if (!place.dataset.drawn) place.on("plotly_click", follow);
    place.dataset.drawn = "yes";
  } catch (error) {
    place.textContent = "The chart could not be drawn; its figures are in the table below.";
    place.dataset.drawn = "no";
  }
}

function follow(event) {
  const link = event.points[0]?.customdata;
  if (typeof link === "string" && link.startsWith("/jobs/")) location.assign(link);
}

const near = new IntersectionObserver((entries) => {
  for (const entry of entries) {
    if (!entry.isIntersecting) continue;
    near.unobserve(entry.target);
    draw(entry.target);
  }
}, { rootMargin: "200px" });

function watch(root) {
  for (const place of root.querySelectorAll("[data-chart]")) near.observe(place);
}

watch(document);
document.addEventListener("live:replaced", (event) => watch(event.detail.element));
dark.addEventListener("change", () => document.querySelectorAll("[data-drawn=yes]").forEach(draw));
