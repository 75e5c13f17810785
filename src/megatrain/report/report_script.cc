#include "megatrain/report/report_style.h"

namespace megatrain {

// Chooses among the drawings in the page, or asks its server for another one, and shows values under the pointer. It
// draws nothing itself, and data enters the page only as text.
const char* const kReportScript = R"js(
"use strict";
const live = document.body.dataset.live !== undefined;
const choice = { across: "step", log: 0, smooth: 1 };

const make = (parent, tag, attributes, text) => {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) node.setAttribute(name, value);
  if (text !== undefined) node.textContent = text;
  return parent.appendChild(node);
};

// Values under the pointer
const tip = document.getElementById("tip");
const showTip = (event, lines) => {
  tip.textContent = "";
  for (const line of lines) make(tip, "div", {}, line);
  tip.hidden = false;
  const left = event.clientX + 16, width = tip.offsetWidth;
  tip.style.left = Math.max(4, left + width > innerWidth - 8 ? event.clientX - width - 16 : left) + "px";
  tip.style.top = event.clientY + 12 + "px";
};
// The point of a curve that is nearest to x, which goes from 0 to 1000.
const nearest = (curve, x) => {
  const points = curve.points, at = (i) => points.getItem(i).x;
  let low = 0, high = points.numberOfItems - 1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (at(middle) < x) low = middle; else high = middle;
  }
  const index = x - at(low) < at(high) - x ? low : high, word = (name) => (curve.dataset[name] || "").split(" ")[index];
  return { name: curve.dataset.name, x: at(index), step: word("steps"), value: word("values"), at: word("at") };
};
let pointed = null, pointer = null;
const leave = () => {
  if (pointed) pointed.querySelector(".cursor").setAttribute("visibility", "hidden");
  pointed = null;
  tip.hidden = true;
};
const point = () => {
  const under = document.elementFromPoint(pointer.clientX, pointer.clientY), svg = under && under.closest("svg.chart");
  if (svg !== pointed) leave();
  if (!svg) return;
  const box = svg.getBoundingClientRect(), style = getComputedStyle(svg), left = parseFloat(style.paddingLeft);
  const width = box.width - left - parseFloat(style.paddingRight);
  const x = 1000 * (pointer.clientX - box.left - left) / width;
  const shown = [...svg.querySelectorAll("polyline")].filter((curve) => getComputedStyle(curve).display !== "none");
  const found = shown.map((curve) => nearest(curve, x));
  const closest = found.reduce((a, b) => Math.abs(a.x - x) <= Math.abs(b.x - x) ? a : b);
  const cursor = svg.querySelector(".cursor");
  for (const name of ["x1", "x2"]) cursor.setAttribute(name, closest.x / 10 + "%");
  cursor.setAttribute("visibility", "visible");
  const lines = ["step " + closest.step + (closest.at ? ", " + closest.at : "")];
  for (const each of found) {
    if (Math.abs(each.x - closest.x) * width / 1000 < 12) lines.push(each.name + ": " + each.value);
  }
  pointed = svg;
  showTip(pointer, lines);
};
document.addEventListener("pointermove", (event) => { pointer = event; point(); });
document.documentElement.addEventListener("pointerleave", leave);

// Which drawing is shown
const choose = () => {
  document.body.dataset.smooth = choice.smooth;
  if (live) { chosen = true; pause = clearTimeout(pause); refresh(); return; }
  for (const figure of document.querySelectorAll("figure[data-metric]")) {
    const log = figure.dataset.axisLog;
    figure.hidden = figure.dataset.across !== choice.across || (log !== undefined && Number(log) !== choice.log);
  }
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
        choose();
      });
    }
  };
  group("across", "across", [["step", "steps"], ["tokens", "tokens"], ["time", "time"]]);
  group("loss", "log", [[0, "linear"], [1, "log"]]);
  group("smoothing", "smooth", [[0, "off"], [1, "some"], [2, "more"]]);
};

// What follows is of the page that a server lets grow.
const runs = [], selected = Number(document.body.dataset.live);
const setText = (node, text) => { if (node && node.textContent !== text) node.textContent = text; };
const drawState = () => {
  const run = runs[selected], state = document.querySelector(".state"), box = document.querySelector(".cards");
  setText(document.getElementById("progress"), run.progress);
  setText(state, run.state);
  state.classList.toggle("complete", run.complete);
  state.classList.toggle("ended", run.why !== "");
  setText(document.getElementById("why"), run.why);
  while (box.children.length < run.cards.length) {
    const card = make(box, "div", { class: "card" });
    for (const tag of ["h2", "b", "span"]) make(card, tag);
  }
  run.cards.forEach((card, index) => {
    [card.title, card.value, card.note].forEach((text, part) => setText(box.children[index].children[part], text));
  });
  for (const none of document.querySelectorAll("main > p.none")) if (run.cards.length > 0) none.remove();
  const alerts = document.getElementById("alerts");
  alerts.textContent = "";
  for (const each of runs) {
    for (const alert of each.alerts)
      make(alerts, "p", { class: "alert" }, (runs.length > 1 ? each.name + ": " : "") + alert);
  }
  document.querySelectorAll("nav.runs small").forEach((small, index) => {
    setText(small, runs[index].state + ", " + runs[index].progress);
  });
};
// One request at a time, and a pause before the next: a fast run has news more often, and a long one takes a while.
// What a reader chose is asked for at once.
let asking = false, again = false, chosen = false, pause;
const refresh = () => {
  if (asking || pause) { again = true; return; }
  const began = performance.now();
  asking = true;
  again = chosen = false;
  fetch("figures?run=" + selected + "&across=" + choice.across + "&log=" + choice.log)
    .then((reply) => reply.ok ? reply.text() : Promise.reject(reply.status))
    .then((text) => {
      const before = pointed;
      for (const part of [...new DOMParser().parseFromString(text, "text/html").body.children]) {
        const old = document.getElementById(part.id);
        if (old.outerHTML !== part.outerHTML) old.replaceWith(document.adoptNode(part));
      }
      if (before) point();  // at what is there now
    })
    .catch(() => {})
    .then(() => {
      asking = false;
      if (chosen) { refresh(); return; }
      const next = () => { pause = undefined; if (again) refresh(); };
      pause = setTimeout(next, Math.max(500, 9 * (performance.now() - began)));
    });
};
const follow = () => {
  const source = new EventSource("events");
  source.addEventListener("run", (event) => {
    const told = JSON.parse(event.data), before = runs[told.run];
    // the rest of the page is there now
    if (before && before.state === "absent" && told.state !== "absent") location.reload();
    runs[told.run] = told;
    if (runs.length !== told.of || runs.includes(undefined)) return;
    drawState();
    refresh();
  });
  source.addEventListener("open", () => document.body.classList.remove("lost"));
  source.addEventListener("error", () => document.body.classList.add("lost"));
};

document.body.dataset.smooth = choice.smooth;
drawControls();
if (live) follow();
)js";

}  // namespace megatrain
