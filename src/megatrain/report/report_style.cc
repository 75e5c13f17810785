#include "megatrain/report/report_style.h"

namespace megatrain {

const char* const kReportStyle = R"css(
:root { color-scheme: light dark; --page: #ffffff; --ink: #1a1f27; --soft: #667085; --line: #e4e7ec; --card: #f6f7f9;
  --blue: #2563eb; --orange: #e8590c; --green: #2b8a3e; --red: #c92a2a;
  --forward: #4c8bf5; --head: #12b5a6; --backward: #7c5cdb; --update: #f08c00; --weights: #91a7c4;
  --gradients: #e8590c; --activations: #d6a11e; --state: #c2558f; --other: #868e96; }
@media (prefers-color-scheme: dark) { :root { --page: #101418; --ink: #e6e9ee; --soft: #98a2b3; --line: #2a313a;
  --card: #181d23; --blue: #6ea8fe; --orange: #ff9248; --green: #69db7c; --red: #ff8787;
  --forward: #5c96f2; --head: #20c1b1; --backward: #957be8; --update: #f59f2a; --weights: #748aa6;
  --gradients: #f2713a; --activations: #dcb244; --state: #cf6ba0; --other: #7d858e; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; }
main { max-width: 1124px; margin: 0 auto; padding: 32px 32px 64px; }
h1 { margin: 0; font-size: 28px; line-height: 1.2; letter-spacing: -.01em; overflow-wrap: anywhere; }
main > h2 { margin: 40px 0 8px; font-size: 19px; }
p { margin: 4px 0; color: var(--soft); }
.state { display: inline-block; padding: 0 9px; border-radius: 9px; font-size: 13px; color: var(--page);
  background: var(--orange); }
.state.complete { background: var(--green); }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(158px, 1fr)); gap: 12px; margin: 24px 0 0; }
.card { padding: 12px 14px; border-radius: 8px; background: var(--card); }
.card h2 { margin: 0; font-size: 13px; font-weight: 500; color: var(--soft); }
.card b { display: block; font-size: 23px; font-weight: 600; line-height: 1.35; font-variant-numeric: tabular-nums; }
.card span { font-size: 12.5px; color: var(--soft); }
figure { margin: 16px 0 0; }
figcaption { display: flex; flex-wrap: wrap; gap: 2px 18px; align-items: baseline; font-weight: 600; font-size: 14px;
  margin-bottom: 4px; }
.keys { display: flex; flex-wrap: wrap; gap: 2px 14px; font-weight: 400; font-size: 12.5px; color: var(--soft); }
.key { display: inline-flex; align-items: center; gap: 6px; }
.key i { width: 14px; height: 3px; border-radius: 1px; background: var(--blue); }
.key i.raw { opacity: .4; }
.key i.evaluation { background: var(--orange); }
.key i.box { height: 10px; width: 10px; border-radius: 2px; }
.pair { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 420px), 1fr)); gap: 8px 20px; }
svg { display: block; width: 100%; height: auto; overflow: visible; }
svg text { font: 12px system-ui, -apple-system, "Segoe UI", Roboto, Arial, sans-serif; fill: var(--soft);
  font-variant-numeric: tabular-nums; }
svg text.lane { fill: var(--ink); font-size: 13px; }
.grid { stroke: var(--line); }
.axis { stroke: var(--soft); stroke-opacity: .6; }
.peak { stroke: var(--ink); stroke-width: 2; }
.curve { fill: none; stroke: var(--blue); stroke-width: 1.8; stroke-linejoin: round; }
.curve.raw { stroke-width: 1; stroke-opacity: .4; }
.curve.evaluation { stroke: var(--orange); }
.dot { fill: var(--blue); } .dot.evaluation { fill: var(--orange); }
.cursor { stroke: var(--soft); stroke-dasharray: 3 3; pointer-events: none; }
.box.forward, .tag0 { fill: var(--forward); background: var(--forward); }
.box.head, .tag1 { fill: var(--head); background: var(--head); }
.box.backward, .tag2 { fill: var(--backward); background: var(--backward); }
.box.update, .tag3 { fill: var(--update); background: var(--update); }
.box.weights, .tag4 { fill: var(--weights); background: var(--weights); }
.box.gradients, .tag5 { fill: var(--gradients); background: var(--gradients); }
.box.activations, .tag6 { fill: var(--activations); background: var(--activations); }
.box.state, .tag7 { fill: var(--state); background: var(--state); }
.box.other, i.tags, rect.tags { fill: var(--other); background: var(--other); }
.memory rect { stroke: var(--page); stroke-width: 1; }
ul.tags { display: grid; grid-template-columns: repeat(auto-fill, minmax(240px, 1fr)); gap: 2px 28px; margin: 6px 0 0;
  padding: 0; list-style: none; font-size: 13px; }
ul.tags li { display: flex; align-items: center; gap: 8px; }
ul.tags i { width: 10px; height: 10px; border-radius: 2px; flex: none; }
ul.tags span { flex: 1; color: var(--soft); }
ul.tags b { font-weight: 500; font-variant-numeric: tabular-nums; }
article { margin: 12px 0; border-radius: 8px; background: var(--card); padding: 10px 14px; }
article h3 { margin: 0 0 4px; font-size: 13px; font-weight: 500; color: var(--soft); }
pre { margin: 0; white-space: pre-wrap; overflow-wrap: anywhere;
  font: 13px/1.5 ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace; }
pre.prompt { color: var(--soft); }
pre.config { padding: 14px 16px; border-radius: 8px; background: var(--card); columns: 2 360px; column-gap: 28px; }
#tip { position: fixed; z-index: 1; padding: 6px 10px; border-radius: 6px; pointer-events: none; font-size: 12.5px;
  color: var(--ink); background: var(--card); border: 1px solid var(--line); box-shadow: 0 2px 10px rgb(0 0 0 / .18);
  font-variant-numeric: tabular-nums; white-space: nowrap; }
@media (max-width: 640px) { main { padding: 20px 16px 48px; } figure { overflow-x: auto; }
  svg[viewBox^="0 0 1060 "] { min-width: 680px; } }
@media print { #tip { display: none; } main > h2 { break-after: avoid; } figure { break-inside: avoid; } }
)css";

const char* const kReportScript = R"js(
"use strict";
const tip = document.getElementById("tip");
for (const svg of document.querySelectorAll("svg.chart")) {
  const [xLow, xHigh, xFrom, xTo] = svg.dataset.x.split(" ").map(Number);
  const [yLow, yHigh, yFrom, yTo] = svg.dataset.y.split(" ").map(Number);
  const log = svg.dataset.log === "1";
  const toX = (p) => xLow + (p - xFrom) / (xTo - xFrom) * (xHigh - xLow);
  const toY = (p) => {
    const part = (p - yFrom) / (yTo - yFrom);
    return log ? yLow * Math.pow(yHigh / yLow, part) : yLow + part * (yHigh - yLow);
  };
  const curves = [...svg.querySelectorAll("polyline")].map((line) => ({
    name: line.dataset.name,
    points: line.getAttribute("points").split(" ").map((pair) => pair.split(",").map(Number)),
  }));
  const cursor = document.createElementNS("http://www.w3.org/2000/svg", "line");
  cursor.setAttribute("class", "cursor");
  cursor.setAttribute("y1", yTo);
  cursor.setAttribute("y2", yFrom);
  cursor.style.display = "none";
  svg.appendChild(cursor);
  const nearest = (points, at) => {
    let low = 0, high = points.length - 1;
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (points[middle][0] < at) low = middle; else high = middle;
    }
    return at - points[low][0] < points[high][0] - at ? points[low] : points[high];
  };
  svg.addEventListener("pointermove", (event) => {
    const at = new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse()).x;
    const found = curves.map((curve) => [curve.name, nearest(curve.points, at)]);
    const closest = found.reduce((a, b) => Math.abs(a[1][0] - at) <= Math.abs(b[1][0] - at) ? a : b)[1];
    cursor.setAttribute("x1", closest[0]);
    cursor.setAttribute("x2", closest[0]);
    cursor.style.display = "";
    tip.textContent = "";
    const line = (text) => { tip.appendChild(document.createElement("div")).textContent = text; };
    line("step " + Math.round(toX(closest[0])));
    for (const [name, point] of found) {
      if (Math.abs(point[0] - closest[0]) < 12) line(name + ": " + toY(point[1]).toPrecision(4));
    }
    tip.hidden = false;
    const left = event.clientX + 16, width = tip.offsetWidth;
    tip.style.left = (left + width > innerWidth - 8 ? event.clientX - width - 16 : left) + "px";
    tip.style.top = event.clientY + 12 + "px";
  });
  svg.addEventListener("pointerleave", () => { tip.hidden = true; cursor.style.display = "none"; });
}
)js";

}  // namespace megatrain
