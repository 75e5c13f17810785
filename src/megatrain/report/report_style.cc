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
main > h2, #memory > h2, #samples > h2 { margin: 40px 0 8px; font-size: 19px; }
p { margin: 4px 0; color: var(--soft); }
.state { display: inline-block; padding: 0 9px; border-radius: 9px; font-size: 13px; color: var(--page);
  background: var(--orange); }
.state.complete { background: var(--green); }
.state.ended { background: var(--red); }
#why { overflow-wrap: anywhere; }
#why:empty { display: none; }
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
svg { overflow: visible; }
figure > svg { display: block; width: 100%; }
svg.chart { padding: 0 14px 0 58px; touch-action: pan-y; }
svg.lanes { padding: 0 14px 0 74px; }
body[data-smooth="0"] .some, body[data-smooth="2"] .some, body:not([data-smooth="2"]) .more,
body:not([data-smooth="0"]) .off { display: none; }
svg text { font: 12px system-ui, -apple-system, "Segoe UI", Roboto, Arial, sans-serif; fill: var(--soft);
  font-variant-numeric: tabular-nums; }
svg text.lane { fill: var(--ink); font-size: 13px; }
.grid { stroke: var(--line); }
.axis { stroke: var(--soft); stroke-opacity: .6; }
svg text.busy { font-size: 10.5px; }
line.floor { stroke: var(--ink); stroke-width: 1.5; stroke-dasharray: 4 3; }
rect.floor { fill: var(--ink); opacity: .65; }
.curve { fill: none; stroke: var(--blue); stroke-width: 1.8; stroke-linejoin: round;
  vector-effect: non-scaling-stroke; }
.curve.raw { stroke-width: 1; stroke-opacity: .4; }
body[data-smooth="0"] .curve.raw { stroke-width: 1.8; stroke-opacity: 1; }
body[data-smooth="0"] .key i.raw { opacity: 1; }
.curve.evaluation { stroke: var(--orange); }
.run0 { --run: var(--blue); } .run1 { --run: var(--update); } .run2 { --run: var(--head); }
.run3 { --run: var(--backward); } .run4 { --run: var(--state); } .run5 { --run: var(--red); }
.dot { fill: var(--blue); } .dot.evaluation { fill: var(--orange); }
.curve[class*="run"] { stroke: var(--run); } .dot[class*="run"] { fill: var(--run); }
body:not([data-smooth="0"]) .curve.raw[class*="run"] { stroke-opacity: .22; }
.curve.evaluation[class*="run"] { stroke-dasharray: 5 4; }
.key i[class*="run"] { background: var(--run); }
.key i.evaluation[class*="run"] { background: repeating-linear-gradient(90deg, var(--run) 0 5px, transparent 5px 8px); }
path.beyond { fill: var(--red); } p.beyond { margin: 2px 0 0; color: var(--soft); font-size: 12.5px; }
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
.bar { position: relative; display: flex; height: 26px; margin: 6px 0 8px; border-radius: 4px;
  background: var(--card); }
.bar i { height: 100%; border-right: 1px solid var(--page); }
.bar b { position: absolute; top: -4px; bottom: -4px; width: 2px; margin-left: -1px; background: var(--ink); }
ul.tags { display: grid; grid-template-columns: repeat(auto-fill, minmax(240px, 1fr)); gap: 2px 28px; margin: 6px 0 0;
  padding: 0; list-style: none; font-size: 13px; }
ul.tags li { display: flex; align-items: center; gap: 8px; }
ul.tags i { width: 10px; height: 10px; border-radius: 2px; flex: none; }
ul.tags span { flex: 1; color: var(--soft); }
ul.tags b { font-weight: 500; font-variant-numeric: tabular-nums; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: 13px; }
th, td { padding: 6px 12px 6px 0; text-align: left; vertical-align: top; border-top: 1px solid var(--line);
  font-weight: 400; }
thead th { border-top: 0; color: var(--soft); }
table.samples td, table.samples thead th { min-width: 200px; }
table.samples th:first-child { min-width: 0; font-variant-numeric: tabular-nums; }
table.config td { overflow-wrap: anywhere; }
table.config td:last-child { color: var(--soft); }
details { margin-top: 12px; } summary { cursor: pointer; color: var(--soft); margin-bottom: 8px; }
#controls { display: flex; flex-wrap: wrap; gap: 8px 22px; }
.choice { display: inline-flex; align-items: center; }
.choice small { margin-right: 8px; color: var(--soft); }
.choice button { font: inherit; font-size: 13px; padding: 3px 11px; color: var(--soft); background: var(--card);
  border: 1px solid var(--line); border-left-width: 0; cursor: pointer; }
.choice button:first-of-type { border-left-width: 1px; border-radius: 6px 0 0 6px; }
.choice button:last-of-type { border-radius: 0 6px 6px 0; }
.choice button[aria-pressed="true"] { color: var(--page); background: var(--ink); border-color: var(--ink); }
.alert { margin: 10px 0 0; padding: 8px 12px; border-radius: 8px; color: var(--ink); background: var(--card);
  border-left: 4px solid var(--red); }
.lost .state { background: var(--soft); }
.lost .state::after { content: " (watch has ended)"; }
nav.runs { display: flex; flex-wrap: wrap; gap: 6px 10px; margin-bottom: 20px; }
nav.runs a { padding: 4px 12px; border-radius: 8px; color: var(--ink); background: var(--card); text-decoration: none;
  border: 1px solid var(--line); }
nav.runs a.selected { border-color: var(--ink); }
nav.runs i { display: inline-block; width: 10px; height: 10px; margin-right: 7px; border-radius: 5px;
  background: var(--run); }
nav.runs small { color: var(--soft); }
pre { margin: 0; white-space: pre-wrap; overflow-wrap: anywhere;
  font: 13px/1.5 ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace; }
pre.config { padding: 14px 16px; border-radius: 8px; background: var(--card); columns: 2 360px; column-gap: 28px; }
#tip { position: fixed; z-index: 1; padding: 6px 10px; border-radius: 6px; pointer-events: none; font-size: 12.5px;
  color: var(--ink); background: var(--card); border: 1px solid var(--line); box-shadow: 0 2px 10px rgb(0 0 0 / .18);
  font-variant-numeric: tabular-nums; white-space: nowrap; }
@media (max-width: 640px) { .fine { display: none; } main { padding: 20px 16px 48px; } h1 { font-size: 24px; }
  .cards { grid-template-columns: 1fr 1fr; gap: 8px; } .card { padding: 10px 12px; } .card b { font-size: 20px; }
  ul.tags { grid-template-columns: 1fr; }
  pre.config { columns: 1; }
  table.samples thead { display: none; }
  table.samples td, table.samples th { display: block; border: 0; padding: 2px 0; }
  table.samples th:first-child { margin-top: 10px; padding-top: 8px; border-top: 1px solid var(--line); }
  table.samples th:first-child::before { content: "step "; }
  table.samples td::before { content: attr(data-prompt); display: block; color: var(--soft); white-space: pre-wrap; } }
@media print { #tip, #controls { display: none; } figure { break-inside: avoid; }
  main > h2, #memory > h2, #samples > h2 { break-after: avoid; } }
)css";

}  // namespace megatrain
