#include "megatrain/report/report_style.h"

namespace megatrain {

// Data enters the page as text and attributes alone, never as markup.
const char* const kReportScript = R"js(
"use strict";
const kNamespace = "http://www.w3.org/2000/svg";
const inPage = document.getElementById("data");
const live = document.body.dataset.live !== undefined;
const page = inPage ? JSON.parse(inPage.textContent) : { runs: [], selected: Number(document.body.dataset.live) };
const choice = { x: "step", log: false, smooth: 1 };
const kCharts = {
  loss: { name: "training" },
  lr: { zero: true, plain: true },
  grad_norm: { log: true },
  tokens_per_s: { zero: true },
  seconds: { log: true, zero: true },
};

const make = (parent, tag, attributes, text) => {
  const svg = parent.namespaceURI === kNamespace || tag === "svg";
  const node = svg ? document.createElementNS(kNamespace, tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) node.setAttribute(name, value);
  if (text !== undefined) node.textContent = text;
  return parent.appendChild(node);
};

// Numbers and axes
const duration = (s) => s >= 1 ? three(s) + " s" : s >= 1e-3 ? three(s * 1e3) + " ms" : three(s * 1e6) + " us";
const three = (v) => String(Number(v.toPrecision(3)));
const bytes = (b) => {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (b >= 1024 && unit < 4) { b /= 1024; ++unit; }
  return three(b) + " " + units[unit];
};
const short = (v) => {
  const size = Math.abs(v);
  for (const [unit, suffix] of [[1e12, "T"], [1e9, "B"], [1e6, "M"], [1e3, "k"]]) {
    if (size >= 10 * unit || (size >= unit && v % unit === 0)) return Number((v / unit).toPrecision(4)) + suffix;
  }
  return String(Number(v.toPrecision(6)));
};
// As many decimals as tell neighbours apart; one exponent or suffix serves all.
const labels = (ticks) => {
  const largest = Math.max(...ticks.map(Math.abs));
  let unit = 1, suffix = "";
  for (const [size, name] of [[1e9, "G"], [1e6, "M"], [1e3, "k"]]) {
    if (unit === 1 && largest >= 10 * size) { unit = size; suffix = name; }
  }
  if (largest > 0 && largest < 1e-2) {
    const power = Math.floor(Math.log10(largest) + 1e-9);
    unit = Math.pow(10, power);
    suffix = "e" + power;
  }
  const decimals = (v) => (String(Number((v / unit).toPrecision(6))).split(".")[1] || "").length;
  const most = Math.max(...ticks.map(decimals));
  return ticks.map((v) => v === 0 ? "0" : (v / unit).toFixed(most) + suffix);
};
const clock = (s) => {
  const total = Math.round(s), hours = Math.floor(total / 3600), minutes = Math.floor(total / 60) % 60;
  return hours > 0 ? hours + "h" + String(minutes).padStart(2, "0") + "m"
    : minutes > 0 ? minutes + "m" + String(total % 60).padStart(2, "0") + "s" : three(s) + "s";
};
const roundStep = (raw) => {
  const power = Math.pow(10, Math.floor(Math.log10(raw)));
  for (const factor of [1, 2, 5]) if (raw <= factor * power * (1 + 1e-9)) return factor * power;
  return 10 * power;
};
const linearTicks = (low, high, count, least) => {
  let step = roundStep((high - low) / count);
  if ((high - low) / step < 3) step = roundStep((high - low) / (2 * count));
  step = Math.max(step, least || 0);
  const ticks = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + 1e-9 * step; ++i)
    ticks.push(Number((i * step).toPrecision(12)));
  return ticks;
};
const timeTicks = (high, count) => {
  const raw = high / count, steps = [60, 120, 300, 600, 1800, 3600, 7200, 14400, 43200, 86400];
  if (raw <= 30) return linearTicks(0, high, count);
  const step = steps.find((s) => s >= raw) || Math.ceil(raw / 86400) * 86400, ticks = [];
  for (let t = 0; t <= high; t += step) ticks.push(t);
  return ticks;
};
const logTicks = (low, high) => {
  const decades = Math.log10(high / low), ticks = [];
  if (decades < 0.5) return linearTicks(low, high, 5);
  for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); ++power) {
    for (const factor of decades < 1 ? [1, 1.5, 2, 3, 4, 5, 7] : decades < 3 ? [1, 2, 5] : [1]) {
      const value = factor * Math.pow(10, power);
      if (value >= low && value <= high) ticks.push(Number(value.toPrecision(3)));
    }
  }
  return ticks;
};

// The value of a line fitted to the neighbours on both sides, near ones weighing more: it does not lag.
const smoothed = (x, y, weight, half) => {
  const out = new Array(y.length);
  let begin = 0, end = 0;
  for (let k = 0; k < y.length; ++k) {
    while (x[begin] <= x[k] - half) ++begin;
    while (end < x.length && x[end] < x[k] + half) ++end;
    let w = 0, sx = 0, sy = 0, sxx = 0, sxy = 0;
    for (let i = begin; i < end; ++i) {
      if (y[i] === null) continue;
      const at = x[i] - x[k], far = Math.abs(at) / half, g = Math.pow(1 - far * far * far, 3) * weight[i];
      w += g; sx += g * at; sy += g * y[i]; sxx += g * at * at; sxy += g * at * y[i];
    }
    const spread = w * sxx - sx * sx;
    out[k] = w === 0 ? null : spread > 1e-9 * w * sxx ? (sxx * sy - sx * sxy) / spread : sy / w;
  }
  return out;
};

// The values that a chart has room for, as usual_range.h has it: medians of nine neighbours and room around them.
const usualRange = (all, log) => {
  const y = all.filter((v) => v !== null);
  let low = Infinity, high = -Infinity;
  for (let i = 0; i < y.length; ++i) {
    const near = y.slice(Math.max(0, i - 4), i + 5).sort((a, b) => a - b), median = near[(near.length - 1) >> 1];
    low = Math.min(low, median); high = Math.max(high, median);
  }
  const room = 4 * Math.max(high - low, Math.abs(low), Math.abs(high));
  if (y.length < 3 || room === 0) return [-Infinity, Infinity];
  return log && low > 0 ? [low / 1000, high * 1000] : [low - room, high + room];
};

// The curves of one chart: [{name, style, run, points: [[x, y, step, steps in one], …], values: [y, …] of all steps}]
const curvesOf = (metric) => {
  const curves = [], several = page.runs.length > 1, spec = kCharts[metric];
  page.runs.forEach((run, index) => {
    const rows = run.rows, n = rows.step.length;
    if (n === 0) return;
    const low = rows[metric + "_low"], high = rows[metric + "_high"], raw = [];
    for (let i = 0; i < n; ++i) {
      const x = rows[choice.x][i], step = rows.step[i];
      const count = rows.count[i];
      if (low && low[i] !== null && low[i] !== undefined && count > 1) raw.push([x, low[i], step, count], [x, high[i], step, count]);
      else if (rows[metric][i] !== null) raw.push([x, rows[metric][i], step]);
    }
    const name = several ? run.name : spec.name || "each step";
    const rough = choice.smooth > 0 && !spec.plain && rows.step[n - 1] - rows.step[0] >= 19;
    curves.push({ name, style: rough ? "raw" : "smooth", run: index, points: raw, values: rows[metric] });
    if (rough) {
      const all = rows.step[n - 1] - rows.step[0] + 1, half = Math.max(4, all / (choice.smooth > 1 ? 8 : 25));
      const [low, high] = usualRange(rows[metric], spec.log), usual = rows[metric].map((v) => v >= low && v <= high ? v : null);
      const y = smoothed(rows.step, usual, rows.count, half), points = [];
      for (let i = 0; i < n; ++i) if (y[i] !== null) points.push([rows[choice.x][i], y[i], rows.step[i]]);
      curves.push({ name: several ? name + ", smoothed" : "smoothed", style: "smooth", run: index, points, values: y });
    }
    if (metric !== "loss") return;
    const points = [];
    let i = 0;
    for (const [step, loss] of run.evaluations) {
      while (i + 1 < n && rows.step[i] < step) ++i;
      if (loss !== null) points.push([choice.x === "step" ? step : rows[choice.x][i], loss, step]);
    }
    const values = points.map((p) => p[1]);
    if (points.length > 0)
      curves.push({ name: several ? name + ", evaluation" : "evaluation", style: "evaluation", run: index, points, values });
  });
  return curves;
};

const tip = document.getElementById("tip");
const showTip = (event, lines) => {
  tip.textContent = "";
  for (const line of lines) make(tip, "div", {}, line);
  tip.hidden = false;
  const left = event.clientX + 16, width = tip.offsetWidth;
  tip.style.left = Math.max(4, left + width > innerWidth - 8 ? event.clientX - width - 16 : left) + "px";
  tip.style.top = event.clientY + 12 + "px";
};
const xText = (x) => choice.x === "time" ? clock(x) : choice.x === "tokens" ? short(x) : String(x);

const drawChart = (figure) => {
  const metric = figure.dataset.metric, spec = kCharts[metric], caption = figure.querySelector("figcaption");
  const curves = curvesOf(metric).filter((curve) => curve.points.length > 0);
  for (const old of figure.querySelectorAll("svg, p")) old.remove();
  if (curves.length === 0) { make(figure, "p", { class: "none" }, "nothing yet"); return; }
  const keys = caption.querySelector(".keys");
  keys.textContent = "";
  if (curves.length > 1) {
    for (const curve of curves) {
      if (page.runs.length > 1 && curve.style === "raw") continue;
      const key = make(keys, "span", { class: "key" });
      make(key, "i", { class: curve.style + (page.runs.length > 1 ? " run" + curve.run % 6 : "") });
      key.append(curve.name);
    }
  }
  const width = Math.max(280, figure.clientWidth), height = metric === "loss" ? Math.max(240, Math.min(320, width * 0.5)) : 220;
  const left = 52, right = 12, top = 10, bottom = 34;
  let xLow = Infinity, xHigh = -Infinity, yLow, yHigh, positive = true;
  for (const curve of curves) {
    for (const [x, y] of curve.points) { xLow = Math.min(xLow, x); xHigh = Math.max(xHigh, x); positive = positive && y > 0; }
  }
  const fit = (log) => {
    yLow = Infinity; yHigh = -Infinity;
    for (const curve of curves) {
      const [low, high] = usualRange(curve.values, log);
      for (const y of curve.points.map((p) => p[1]).concat(curve.values)) {
        if (y !== null && y >= low && y <= high) { yLow = Math.min(yLow, y); yHigh = Math.max(yHigh, y); }
      }
    }
  };
  fit(positive && (metric === "loss" ? choice.log : spec.log));
  const log = positive && (metric === "loss" ? choice.log : spec.log && yHigh / yLow > 30);
  if (xHigh === xLow) xHigh = xLow + 1;
  if (choice.x !== "step") xLow = 0;
  if (log) {
    const room = Math.max(1.02, Math.pow(yHigh / yLow, 0.05));
    yLow /= room; yHigh *= room;
  } else {
    if (spec.zero) yLow = Math.min(0, yLow);
    const room = yHigh > yLow ? 0.05 * (yHigh - yLow) : yLow !== 0 ? 0.1 * Math.abs(yLow) : 1;
    yLow = yLow === 0 ? 0 : yLow - room; yHigh += room;
  }
  const toX = (x) => left + (width - left - right) * (x - xLow) / (xHigh - xLow);
  const within = (y) => Math.min(Math.max(y, yLow), yHigh);
  const toY = (y) => height - bottom - (height - top - bottom) *
    (log ? Math.log(within(y) / yLow) / Math.log(yHigh / yLow) : (within(y) - yLow) / (yHigh - yLow));
  const svg = make(figure, "svg", { class: "chart", role: "img", "aria-label": caption.firstChild.textContent,
    viewBox: "0 0 " + width + " " + height, width, height });
  const rows = Math.max(3, Math.floor(height / 55)), columns = Math.max(3, Math.floor(width / 110));
  const yTicks = log ? logTicks(yLow, yHigh) : linearTicks(yLow, yHigh, rows);
  const texts = log ? yTicks.map(short) : labels(yTicks);
  yTicks.forEach((tick, index) => {
    const at = toY(tick).toFixed(1);
    make(svg, "line", { class: "grid", x1: left, x2: width - right, y1: at, y2: at });
    make(svg, "text", { class: "tick", "text-anchor": "end", x: left - 7, y: at, dy: ".32em" },
      texts[index]);
  });
  const ticks = choice.x === "time" ? timeTicks(xHigh, columns) : linearTicks(xLow, xHigh, columns, 1);
  for (const tick of ticks) {
    const at = toX(tick).toFixed(1);
    make(svg, "line", { class: "axis", x1: at, x2: at, y1: height - bottom, y2: height - bottom + 4 });
    make(svg, "text", { class: "tick", "text-anchor": "middle", x: at, y: height - bottom + 17 }, xText(tick));
  }
  make(svg, "line", { class: "axis", x1: left, x2: width - right, y1: height - bottom, y2: height - bottom });
  make(svg, "text", { class: "tick", "text-anchor": "end", x: width - right, y: height - 3 },
    { step: "step", tokens: "tokens", time: "time in steps" }[choice.x]);
  for (const curve of curves) {
    const colour = page.runs.length > 1 ? " run" + curve.run % 6 : "";
    const points = curve.points.filter((p) => !log || p[1] > 0);
    make(svg, "polyline", { class: "curve " + curve.style + colour,
      points: points.map((p) => toX(p[0]).toFixed(1) + "," + toY(p[1]).toFixed(1)).join(" ") });
    if (curve.style === "evaluation" || points.length === 1) {
      for (const p of points.length <= 100 ? points : [])
        make(svg, "circle", { class: "dot " + curve.style + colour, cx: toX(p[0]).toFixed(1), cy: toY(p[1]).toFixed(1), r: 3 });
    }
  }
  const beyond = [];
  for (const curve of curves) {
    for (const p of curve.points) {
      if (p[1] === within(p[1])) continue;
      const text = (page.runs.length > 1 || curve.style === "evaluation" ? curve.name + ", " : "") +
        (p[3] > 1 ? "steps " + (p[2] - p[3] + 1) + " to " : "step ") + p[2] + ": " + Number(p[1].toPrecision(6));
      const above = p[1] > yHigh, edge = above ? top : height - bottom;
      const mark = make(svg, "path", { class: "beyond", d: "M" + toX(p[0]).toFixed(1) + "," + edge + (above ? " l4,7" : " l4,-7") + " h-8 z" });
      make(mark, "title", {}, text);
      beyond.push([Math.abs(p[1] - within(p[1])), text]);
    }
  }
  if (beyond.length > 0) {
    const [, text] = beyond.reduce((a, b) => a[0] >= b[0] ? a : b);
    make(figure, "p", { class: "beyond" }, (beyond.length === 1 ? "One value is" : beyond.length + " values are") +
      " beyond the axis and drawn at its edge; " + (beyond.length === 1 ? "" : "the farthest: ") + text);
  }
  const cursor = make(svg, "line", { class: "cursor", y1: top, y2: height - bottom, visibility: "hidden" });
  const nearest = (points, x) => {
    let low = 0, high = points.length - 1;
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (points[middle][0] < x) low = middle; else high = middle;
    }
    return x - points[low][0] < points[high][0] - x ? points[low] : points[high];
  };
  svg.addEventListener("pointermove", (event) => {
    const box = svg.getBoundingClientRect();
    const x = xLow + ((event.clientX - box.left) * width / box.width - left) / (width - left - right) * (xHigh - xLow);
    const found = curves.map((curve) => [curve.name, nearest(curve.points, x)]);
    const closest = found.reduce((a, b) => Math.abs(a[1][0] - x) <= Math.abs(b[1][0] - x) ? a : b)[1];
    for (const name of ["x1", "x2"]) cursor.setAttribute(name, toX(closest[0]));
    cursor.setAttribute("visibility", "visible");
    const lines = ["step " + closest[2] + (choice.x === "step" ? "" : ", " + xText(closest[0]))];
    for (const [name, point] of found) {
      if (Math.abs(toX(point[0]) - toX(closest[0])) < 12) lines.push(name + ": " + Number(point[1].toPrecision(6)));
    }
    showTip(event, lines);
  });
  svg.addEventListener("pointerleave", () => { tip.hidden = true; cursor.setAttribute("visibility", "hidden"); });
};

const drawLanes = () => {
  const figure = document.querySelector("figure.lanes"), run = page.runs[page.selected], tracks = run && run.lanes;
  if (!figure || !tracks || !(tracks.end_s > 0)) return;
  figure.textContent = "";
  const caption = make(figure, "figcaption", {}, "Lanes of step " + tracks.step), keys = make(caption, "span", { class: "keys" });
  const used = new Set();
  for (const lane of tracks.lanes) for (const box of lane.boxes) used.add(box[2]);
  tracks.purposes.forEach((purpose, index) => {
    if (!used.has(index)) return;
    const key = make(keys, "span", { class: "key" });
    make(key, "i", { class: "box " + purpose.style });
    key.append(purpose.name);
  });
  const width = Math.max(280, figure.clientWidth), left = 74, right = 12, row = 30, bar = 20, top = tracks.floor_s > 0 ? 16 : 4;
  const bottom = top + row * tracks.lanes.length, height = bottom + 28;
  const end = Math.max(tracks.end_s, tracks.floor_s, ...tracks.lanes.map((lane) => lane.floor_s));
  const toX = (s) => left + (width - left - right) * s / end;
  const svg = make(figure, "svg", { class: "lanes", role: "img", "aria-label": "Lanes of step " + tracks.step,
    viewBox: "0 0 " + width + " " + height, width, height });
  for (const tick of linearTicks(0, end, Math.max(3, Math.floor(width / 110)))) {
    const at = toX(tick).toFixed(1);
    make(svg, "line", { class: "grid", x1: at, x2: at, y1: top, y2: bottom });
    make(svg, "text", { class: "tick", "text-anchor": "middle", x: at, y: bottom + 17 }, tick === 0 ? "0" : duration(tick));
  }
  tracks.lanes.forEach((lane, index) => {
    const y = top + row * index;
    make(svg, "text", { class: "lane", x: 0, y: y + row / 2 - 5, dy: ".32em" }, lane.name);
    make(svg, "text", { class: "busy", x: 0, y: y + row / 2 + 8, dy: ".32em" },
      Math.round(100 * lane.busy_s / tracks.end_s) + "% busy");
    for (const [start, length, purpose, text] of lane.boxes) {
      const rect = make(svg, "rect", { class: "box " + tracks.purposes[purpose].style, x: toX(start).toFixed(2),
        y: y + (row - bar) / 2, width: Math.max(0.4, toX(length) - left).toFixed(2), height: bar });
      make(rect, "title", {}, text);
    }
    if (lane.floor_s > 0) {
      const line = make(svg, "rect", { class: "floor", x: left, y: y + (row + bar) / 2 + 1, height: 2.5,
        width: (toX(lane.floor_s) - left).toFixed(2) });
      make(line, "title", {}, "the least this lane's work takes on " + tracks.machine + ": " + duration(lane.floor_s));
    }
  });
  if (tracks.floor_s > 0) {
    const at = toX(tracks.floor_s).toFixed(1), late = tracks.floor_s > end / 2;
    make(svg, "line", { class: "floor", x1: at, x2: at, y1: top - 6, y2: bottom });
    make(svg, "text", { class: "tick", "text-anchor": late ? "end" : "start", x: Number(at) + (late ? -5 : 5), y: top - 6 },
      "floor " + duration(tracks.floor_s) + " on " + tracks.machine);
  }
};

const drawAll = () => {
  for (const figure of document.querySelectorAll("figure[data-metric]")) drawChart(figure);
  drawLanes();
};

const drawControls = () => {
  const box = document.getElementById("controls");
  const group = (label, name, values) => {
    const set = make(box, "span", { class: "choice", role: "group", "aria-label": label });
    make(set, "small", {}, label);
    for (const [value, text] of values) {
      const button = make(set, "button", { type: "button", "aria-pressed": choice[name] === value }, text);
      button.addEventListener("click", () => {
        choice[name] = value;
        for (const other of set.querySelectorAll("button")) other.setAttribute("aria-pressed", other === button);
        drawAll();
      });
    }
  };
  group("across", "x", [["step", "steps"], ["tokens", "tokens"], ["time", "time"]]);
  group("loss", "log", [[false, "linear"], [true, "log"]]);
  group("smoothing", "smooth", [[0, "off"], [1, "some"], [2, "more"]]);
};

// What follows is of the page that a server lets grow.
const setText = (selector, text) => {
  const node = document.querySelector(selector);
  if (node && node.textContent !== text) node.textContent = text;
};
const drawState = () => {
  const run = page.runs[page.selected];
  setText("#progress", run.progress);
  setText(".state", run.state);
  document.querySelector(".state").classList.toggle("complete", run.complete);
  document.querySelector(".state").classList.toggle("ended", run.why !== "");
  setText("#why", run.why);
  const box = document.querySelector(".cards");
  while (box.children.length < run.cards.length) {
    const card = make(box, "div", { class: "card" });
    for (const tag of ["h2", "b", "span"]) make(card, tag);
  }
  run.cards.forEach((card, index) => {
    [card.title, card.value, card.note].forEach((text, part) => {
      const node = box.children[index].children[part];
      if (node.textContent !== text) node.textContent = text;
    });
  });
  for (const none of document.querySelectorAll("main > p.none")) if (run.cards.length > 0) none.remove();
  const alerts = document.getElementById("alerts");
  alerts.textContent = "";
  page.runs.forEach((each) => {
    for (const alert of each.alerts || [])
      make(alerts, "p", { class: "alert" }, (page.runs.length > 1 ? each.name + ": " : "") + alert);
  });
  document.querySelectorAll("nav.runs small").forEach((small, index) => {
    small.textContent = page.runs[index].state + ", " + page.runs[index].progress;
  });
  const tiers = run.memory || [], largest = Math.max(1, ...tiers.map((tier) =>
    Math.max(tier.peak, tier.used, tier.planned.reduce((sum, tag) => sum + tag[1], 0))));
  document.querySelectorAll("figure.memory").forEach((figure, index) => {
    const tier = tiers[index], mark = figure.querySelector(".bar b") || make(figure.querySelector(".bar"), "b");
    if (!tier) return;
    mark.style.left = 100 * Math.max(tier.used, 0) / largest + "%";
    mark.hidden = !(tier.used > 0);
    mark.title = "used now: " + bytes(tier.used);
    const planned = tier.planned.reduce((sum, tag) => sum + tag[1], 0);
    figure.querySelector(".keys").textContent = "planned " + bytes(planned) +
      (tier.used > 0 ? ", used now " + bytes(tier.used) : "") + (tier.peak > 0 ? ", peak " + bytes(tier.peak) : "");
  });
};
const drawSamples = () => {
  const box = document.getElementById("samples"), samples = page.runs[page.selected].samples || [];
  box.textContent = "";
  if (samples.length === 0) return;
  make(box, "h2", {}, "Samples");
  const table = make(make(box, "div", { class: "wide" }), "table", { class: "samples" });
  const head = make(make(table, "thead"), "tr"), body = make(table, "tbody");
  const prompts = [...new Set(samples.map((sample) => sample.prompt))];
  make(head, "th", {}, "step");
  for (const prompt of prompts) make(make(head, "th"), "pre", {}, prompt);
  for (const step of [...new Set(samples.map((sample) => sample.step))].sort((a, b) => b - a).slice(0, 40)) {
    const row = make(body, "tr");
    make(row, "th", {}, String(step));
    for (const prompt of prompts) {
      const found = samples.filter((sample) => sample.step === step && sample.prompt === prompt).pop();
      make(make(row, "td", { "data-prompt": prompt }), "pre", {}, found ? found.text : "");
    }
  }
};
const take = (run, told) => {
  if (told.rows && !told.whole) {
    const columns = Object.keys(run.rows), n = told.rows.step.length;
    for (const name of columns) {
      const part = told.rows[name] || told.rows[name.replace(/_(low|high)$/, "")];
      for (let i = 0; i < n; ++i) run.rows[name].push(part[i]);
    }
    delete told.rows;
  }
  Object.assign(run, told);
};
let wanted = false;
const drawSoon = () => {
  if (wanted) return;
  wanted = true;
  requestAnimationFrame(() => { wanted = false; drawAll(); drawState(); });
};
const follow = () => {
  const source = new EventSource("events");
  source.addEventListener("run", (event) => {
    const told = JSON.parse(event.data), index = told.run;
    delete told.run;
    const before = page.runs[index];
    if (before && before.state === "absent" && told.state !== "absent") location.reload();  // the rest of the page is there now
    if (told.whole) page.runs[index] = told;
    else if (page.runs[index]) take(page.runs[index], told);
    if (!page.runs[page.selected] || page.runs.length !== told.of || page.runs.includes(undefined)) return;
    if (index === page.selected && told.samples) drawSamples();
    drawSoon();
  });
  source.addEventListener("open", () => document.body.classList.remove("lost"));
  source.addEventListener("error", () => document.body.classList.add("lost"));
};

drawControls();
if (live) follow(); else drawAll();
let drawnWidth = innerWidth;
addEventListener("resize", () => {
  if (innerWidth === drawnWidth || page.runs.length === 0) return;
  drawnWidth = innerWidth;
  drawAll();
});
)js";

}  // namespace megatrain
