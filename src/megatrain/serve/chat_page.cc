#include "megatrain/serve/chat_page.h"

namespace megatrain {

// One file: nothing is loaded from elsewhere, and texts enter the page only as text.
const char* const kChatPage = R"html(<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy"
  content="default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; img-src data:">
<link rel="icon" href="data:,">
<title>megatrain</title>
<style>
:root { color-scheme: light dark; --page: #ffffff; --ink: #1a1f27; --soft: #667085; --line: #d7dce3; --card: #f3f5f8;
  --blue: #2563eb; --on-blue: #ffffff; --red: #c92a2a; }
@media (prefers-color-scheme: dark) { :root { --page: #101418; --ink: #e6e9ee; --soft: #98a2b3; --line: #2f3742;
  --card: #1a2027; --blue: #6ea8fe; --on-blue: #101418; --red: #ff8787; } }
* { box-sizing: border-box; }
[hidden] { display: none !important; }
html, body { height: 100%; }
body { margin: 0; display: flex; flex-direction: column; background: var(--page); color: var(--ink);
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; }
header, main, form { width: 100%; max-width: 860px; margin: 0 auto; padding: 12px 16px; }
header { display: flex; flex-wrap: wrap; gap: 8px 12px; align-items: center; border-bottom: 1px solid var(--line); }
h1 { margin: 0; font-size: 17px; flex: 1 1 auto; }
main { flex: 1 1 auto; overflow-y: auto; min-height: 0; }
form { border-top: 1px solid var(--line); display: flex; gap: 8px; align-items: flex-end; }
button, select, input, textarea { font: inherit; color: inherit; background: var(--page); border-radius: 8px;
  border: 1px solid var(--line); padding: 7px 11px; max-width: 100%; }
button { cursor: pointer; background: var(--card); }
button.main { background: var(--blue); border-color: var(--blue); color: var(--on-blue); }
button:disabled { opacity: .5; cursor: default; }
:focus-visible { outline: 2px solid var(--blue); outline-offset: 1px; }
#text { flex: 1 1 auto; min-width: 0; resize: none; max-height: 40vh; }
#settings { display: grid; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); gap: 8px 12px; width: 100%; }
#settings label { display: flex; flex-direction: column; font-size: 13px; color: var(--soft); min-width: 0; }
#settings label.wide { grid-column: 1 / -1; }
.turn { margin: 0 0 14px; }
.turn h2 { margin: 0 0 2px; font-size: 12.5px; font-weight: 600; color: var(--soft); }
.turn div { white-space: pre-wrap; overflow-wrap: anywhere; }
.user div { background: var(--card); border-radius: 10px; padding: 8px 12px; }
.turn .note { color: var(--soft); font-size: 13px; }
.turn .wrong { color: var(--red); }
#empty { color: var(--soft); }
</style>
</head>
<body>
<header>
  <h1>megatrain</h1>
  <select id="model" aria-label="Model"></select>
  <button type="button" id="more" aria-expanded="false" aria-controls="settings">Settings</button>
  <button type="button" id="reset">New chat</button>
  <div id="settings" hidden>
    <label class="wide">System message<input id="system" type="text" autocomplete="off"></label>
    <label>Temperature<input id="temperature" type="number" min="0" max="2" step="0.1" value="0.7"></label>
    <label>Top p<input id="top_p" type="number" min="0.01" max="1" step="0.01" value="1"></label>
    <label>Most tokens<input id="max_tokens" type="number" min="1" step="1" placeholder="the context"></label>
    <label>API key<input id="key" type="password" autocomplete="off" placeholder="if the server asks"></label>
  </div>
</header>
<main id="turns" aria-live="polite"><p id="empty">Ask the model something. Nothing leaves this server.</p></main>
<form id="ask">
  <textarea id="text" rows="1" placeholder="Message" aria-label="Message"></textarea>
  <button class="main" id="send">Send</button>
  <button type="button" id="stop" hidden>Stop</button>
</form>
<script>
"use strict";
const at = (id) => document.getElementById(id);
let messages = [], running = null;

const headers = () => {
  const all = { "Content-Type": "application/json" };
  if (at("key").value) all.Authorization = "Bearer " + at("key").value;
  return all;
};
const reason = async (reply) => {
  try { return (await reply.json()).error.message; } catch { return "the server answered " + reply.status; }
};
const showKey = () => { at("settings").hidden = false; at("more").setAttribute("aria-expanded", "true"); at("key").focus(); };

const readModels = async () => {
  let reply;
  try { reply = await fetch("/v1/models", { headers: headers() }); } catch { return; }
  if (!reply.ok) return;
  const chosen = at("model").value;
  at("model").replaceChildren(...(await reply.json()).data.map((model) => new Option(model.id, model.id)));
  if (chosen) at("model").value = chosen;
};

const addTurn = (role, text) => {
  at("empty").hidden = true;
  const turn = document.createElement("section"), head = document.createElement("h2"), body = document.createElement("div");
  turn.className = "turn " + role;
  head.textContent = role === "user" ? "You" : at("model").value;
  body.textContent = text;
  turn.append(head, body);
  at("turns").append(turn);
  at("turns").scrollTop = at("turns").scrollHeight;
  return body;
};
const addNote = (body, text, wrong) => {
  const note = document.createElement("p");
  note.className = wrong ? "note wrong" : "note";
  note.textContent = text;
  body.after(note);
  at("turns").scrollTop = at("turns").scrollHeight;
};

// Calls `take` with the object of each event.
const readEvents = async (reply, take) => {
  const reader = reply.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    for (const line of lines)
      if (line.startsWith("data: ") && line !== "data: [DONE]") take(JSON.parse(line.slice(6)));
  }
};

const request = () => {
  const system = at("system").value.trim();
  const body = { model: at("model").value, stream: true, stream_options: { include_usage: true },
    messages: system ? [{ role: "system", content: system }, ...messages] : messages };
  for (const name of ["temperature", "top_p", "max_tokens"])
    if (at(name).value !== "") body[name] = Number(at(name).value);
  return body;
};

const answer = async (body) => {
  const begun = performance.now();
  let text = "", tokens = 0, finish = null, waited = null;
  try {
    const reply = await fetch("/v1/chat/completions",
      { method: "POST", headers: headers(), body: JSON.stringify(request()), signal: running.signal });
    if (reply.status === 401) showKey();
    if (!reply.ok) throw new Error(await reason(reply));
    waited = Number(reply.headers.get("X-Queue-Ms"));
    await readEvents(reply, (event) => {
      if (event.error) throw new Error(event.error.message);
      if (event.usage) tokens = event.usage.completion_tokens;
      const choice = event.choices[0];
      if (!choice) return;
      finish = choice.finish_reason || finish;
      const low = at("turns").scrollHeight - at("turns").scrollTop - at("turns").clientHeight < 40;
      text += choice.delta.content || "";
      body.textContent = text;
      if (low) at("turns").scrollTop = at("turns").scrollHeight;
    });
    const seconds = (performance.now() - begun) / 1000;
    const cut = finish === "length" ? "; cut at its length" : "";
    addNote(body, `${tokens} tokens in ${seconds.toFixed(1)} s, ${waited} ms of it waiting${cut}`);
  } catch (error) {
    addNote(body, error.name === "AbortError" ? "stopped" : error.message, error.name !== "AbortError");
    if (!text && error.name !== "AbortError") { messages.pop(); return; }
  }
  messages.push({ role: "assistant", content: text });
};

at("ask").addEventListener("submit", async (event) => {
  event.preventDefault();
  const text = at("text").value;
  if (running || !text.trim()) return;
  running = new AbortController();
  at("text").value = "";
  fit();
  at("send").hidden = true;
  at("stop").hidden = false;
  if (!at("model").value) await readModels();
  messages.push({ role: "user", content: text });
  addTurn("user", text);
  await answer(addTurn("assistant", ""));
  running = null;
  at("send").hidden = false;
  at("stop").hidden = true;
  at("text").focus();
});
const fit = () => { at("text").style.height = "auto"; at("text").style.height = at("text").scrollHeight + 2 + "px"; };
at("text").addEventListener("input", fit);
at("text").addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  at("ask").requestSubmit();
});
at("stop").addEventListener("click", () => running && running.abort());
at("reset").addEventListener("click", () => {
  if (running) running.abort();
  messages = [];
  at("turns").replaceChildren(at("empty"));
  at("empty").hidden = false;
  at("text").focus();
});
at("more").addEventListener("click", () => {
  at("settings").hidden = !at("settings").hidden;
  at("more").setAttribute("aria-expanded", String(!at("settings").hidden));
});
at("key").addEventListener("change", readModels);
readModels();
at("text").focus();
</script>
</body>
</html>
)html";

}  // namespace megatrain
