// The console: shows what /v1/live sends once a second, explains and resets buckets.
//
// The stream is read with fetch and not with EventSource, which cannot send a token. Texts are always set as text
// nodes: ids are chosen by clients and must never be parsed as HTML. A tab that nobody sees closes its stream: a browser
// has six connections to a server, and the server a few places for those who watch.

const POINTS = 600;
// A server that has just started fills the chart from this many seconds on: ten seconds of ten minutes would be a line.
const POINTS_MIN = 60;
const SPARK_POINTS = 60;
const SPARK_POINTS_MIN = 6;
// The characters of an id that a table shows.
const ID_SHOWN = 40;
const SVG = "http://www.w3.org/2000/svg";
const RETRY_MILLIS = 2000;
// The server sends an event each second. Without one for this long, the figures are old.
const QUIET_MILLIS = 5000;

const $ = (id) => document.getElementById(id);
const number = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });

const state = {
  history: { allowed: [], denied: [], degraded: [] },
  // The history as the chart shows it, which stays the same while the page is paused.
  drawn: { allowed: [], denied: [], degraded: [] },
  sparks: new Map(),
  snapshot: null,
  paused: false,
  // The bucket that the dialog asks about.
  resetting: null,
  token: sessionStorage.getItem("tollway-token"),
};

// ---- Requests -------------------------------------------------------------------------------------------------------

function headers(extra = {}) {
  return state.token ? { ...extra, Authorization: `Bearer ${state.token}` } : extra;
}

/** Sends a request and returns its JSON; a problem of the server becomes an Error with its detail. */
async function ask(path, body) {
  const options = body === undefined
    ? { headers: headers() }
    : { method: "POST", headers: headers({ "Content-Type": "application/json" }), body: JSON.stringify(body) };
  const response = await fetch(path, { ...options, cache: "no-store" });
  const answer = await response.json().catch(() => null);
  if (response.ok) return answer;
  throw new Error(answer?.detail ?? answer?.title ?? `the server answered ${response.status}`);
}

/** Reads the stream of events until it ends; throws what went wrong. */
async function readStream(onEvent) {
  const abort = new AbortController();
  const stop = (reason) => abort.abort(new Error(reason));
  const stopIfHidden = () => { if (document.hidden) stop("the tab was hidden"); };
  let quiet;
  const heard = () => {
    clearTimeout(quiet);
    quiet = setTimeout(stop, QUIET_MILLIS, `the server sent nothing for ${duration(QUIET_MILLIS / 1000)}`);
  };
  document.addEventListener("visibilitychange", stopIfHidden);
  heard();
  try {
    const response = await fetch("v1/live", { headers: headers(), cache: "no-store", signal: abort.signal });
    if (response.status === 401 || response.status === 403) {
      await askForToken(response.status);
      return;
    }
    if (!response.ok) {
      const problem = await response.json().catch(() => null);
      throw new Error(problem?.detail ?? `the server answered ${response.status}`);
    }
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    for (let text = ""; ;) {
      const { value, done } = await reader.read();
      if (done) throw new Error("the server closed the stream");
      heard();
      text += value;
      for (let end = text.indexOf("\n\n"); end >= 0; end = text.indexOf("\n\n")) {
        dispatch(text.slice(0, end), onEvent);
        text = text.slice(end + 2);
      }
    }
  } finally {
    clearTimeout(quiet);
    document.removeEventListener("visibilitychange", stopIfHidden);
    // Whatever went wrong: a stream that nobody reads would keep its place at the server.
    abort.abort();
  }
}

/** Waits until somebody sees the page. */
async function visible() {
  while (document.hidden) {
    await new Promise((resolve) => document.addEventListener("visibilitychange", resolve, { once: true }));
  }
}

function dispatch(block, onEvent) {
  let name = "message";
  const data = [];
  for (const line of block.split("\n")) {
    if (line.startsWith("event:")) name = line.slice(6).trim();
    else if (line.startsWith("data:")) data.push(line.slice(5).trim());
  }
  if (data.length > 0) onEvent(name, JSON.parse(data.join("\n")));
}

function askForToken(status) {
  const dialog = $("token-dialog");
  $("token-error").textContent = !state.token ? ""
    : status === 401 ? "This token is not known." : "This token may not see the console.";
  setHealth("warn", "a token is needed");
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => {
      state.token = $("token-input").value.trim() || null;
      if (state.token) sessionStorage.setItem("tollway-token", state.token);
      else sessionStorage.removeItem("tollway-token");
      $("token-input").value = "";
      resolve();
    }, { once: true });
    if (!dialog.open) dialog.showModal();
  });
}

async function run() {
  for (;;) {
    await visible();
    try {
      await readStream(onEvent);
    } catch (error) {
      setHealth("bad", `no live figures: ${error.message}; trying again`);
      if (!document.hidden) await new Promise((resolve) => setTimeout(resolve, RETRY_MILLIS));
    }
  }
}

function onEvent(name, data) {
  if (name === "history") {
    state.history = { allowed: data.allowed, denied: data.denied, degraded: data.degraded };
    state.sparks = new Map(data.limits.map((limit) => [limitKey(limit), { step: limit.step, decided: [...limit.decided], part: 0, age: 0 }]));
  } else if (name === "snapshot") {
    remember(data);
    state.snapshot = data;
    if (!state.paused) render();
  }
}

/** Appends a snapshot to the history, which the server sends only once. */
function remember({ totals, limits }) {
  for (const name of ["allowed", "denied", "degraded"]) {
    const points = state.history[name];
    points.push(totals[name]);
    if (points.length > POINTS) points.shift();
  }
  for (const limit of limits) {
    const spark = state.sparks.get(limitKey(limit)) ?? { step: 10, decided: [], part: 0, age: 0 };
    state.sparks.set(limitKey(limit), spark);
    spark.part += limit.allowed + limit.denied;
    spark.age += 1;
    if (spark.age < spark.step) continue;
    spark.decided.push(spark.part);
    if (spark.decided.length > SPARK_POINTS) spark.decided.shift();
    spark.part = 0;
    spark.age = 0;
  }
}

const limitKey = ({ kind, name, limit }) => JSON.stringify([kind, name ?? limit]);

// ---- Words ----------------------------------------------------------------------------------------------------------

/** Formats seconds as a person says them, and as `tollway top` does: `0.046 s`, `41 s`, `5 min 41 s`, `3 d 4 h`. */
function duration(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (0 < seconds && seconds < 1e-6) return "<1 µs";
  if (seconds < 10) return `${Number(seconds.toPrecision(2))} s`;
  const whole = Math.ceil(seconds);
  const units = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];
  const first = units.findIndex(([, size]) => whole >= size);
  const [name, size] = units[first];
  const rest = Math.floor((whole % size) / (units[first + 1]?.[1] ?? 1));
  const most = `${Math.floor(whole / size)} ${name}`;
  return rest > 0 && first < 3 ? `${most} ${rest} ${units[first + 1][0]}` : most;
}

const micros = (seconds) => (seconds * 1e6 < 1000 ? `${number.format(seconds * 1e6)} µs` : `${(seconds * 1e3).toFixed(1)} ms`);
const percent = (share) => (share === null || share === undefined ? "–" : `${(share * 100).toFixed(1)} %`);
const sum = (points) => points.reduce((total, point) => total + point, 0);
const range = ({ count_min: least, count_max: most }) => (least === most ? number.format(most) : `${number.format(least)} to ${number.format(most)}`);
// The server knows the time of a denial to a tenth of a second.
const time = (at) => `${new Date(at * 1000).toLocaleTimeString("en-GB", { hour12: false })}.${Math.floor((at % 1) * 10)}`;
// A rule that was asked without selectors and key has an empty id.
const shownId = ({ kind, id }) => (id === null ? "(not shown)" : id !== "" ? id : kind === "rule" ? "–" : "(empty)");
// A long id is shortened in its middle: ids that are alike differ at the start or at the end.
const shortened = (id) => (id.length > ID_SHOWN ? `${id.slice(0, ID_SHOWN / 2)}…${id.slice(1 - ID_SHOWN / 2)}` : id);
const counted = (count, word) => `${number.format(count)} ${word}${count === 1 ? "" : "s"}`;

/**
 * Returns the id that a shown one stands for: the server shows a backslash as two, and bytes that are not printable
 * ASCII as `\xff`. Returns null if that cannot be known or sent: the id was cut, or is not UTF-8.
 */
function exactId(shown) {
  if (shown === null || shown.endsWith("…")) return null;
  const bytes = shown.replace(/\\(?:\\|x(..))/g, (_, hex) => (hex ? String.fromCharCode(parseInt(hex, 16)) : "\\"));
  try {
    const utf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
    return utf8.decode(Uint8Array.from(bytes, (byte) => byte.charCodeAt(0)));
  } catch {
    return null;
  }
}

/** Names the numbers that a denied request did not fit in, which may be those of an override. */
const why = ({ numbers }) => (numbers ? `over ${numbers}` : "–");

function setHealth(level, text) {
  $("health").className = `health ${level === "good" ? "good" : level === "bad" ? "bad" : ""}`;
  if ($("health-text").textContent !== text) $("health-text").textContent = text;
}

// ---- Drawing --------------------------------------------------------------------------------------------------------

function render() {
  const { server, totals, latency, limits, store, gates, top_denied, top_spent, last_denials } = state.snapshot;
  const { allowed, denied, degraded } = state.history;
  const unreachable = store.nodes.filter((node) => node.state === "unreachable");
  if (!server.healthy) setHealth("bad", "a part of the server failed; see its log");
  else if (server.draining) setHealth("warn", "draining");
  else if (unreachable.length > 0) setHealth("warn", `${unreachable.length} of ${store.nodes.length} Redis nodes unreachable`);
  else setHealth("good", "healthy");
  $("server").textContent = `${server.host} · ${server.version} · up ${duration(server.uptime)}`;

  $("allowed").textContent = `${number.format(totals.allowed)} /s`;
  $("allowed-note").textContent = `peak ${number.format(Math.max(0, ...allowed))} /s`;
  $("denied").textContent = `${number.format(totals.denied)} /s`;
  const all = sum(allowed) + sum(denied);
  const span = `the last ${duration(allowed.length)}`;
  $("denied-note").textContent = all > 0 ? `${percent(sum(denied) / all)} of ${span}` : "no requests yet";
  $("degraded").textContent = `${number.format(totals.degraded)} /s`;
  $("degraded-note").textContent = store.degraded_since !== null
    ? `for ${duration(state.snapshot.at - store.degraded_since)}`
    : sum(degraded) > 0 ? `${number.format(sum(degraded))} in ${span}` : `none in ${span}`;
  $("latency").textContent = latency ? `${micros(latency.p50)} / ${micros(latency.p99)}` : "–";

  drawChart();
  drawLimits(limits);
  drawStore(store, gates);
  drawTop("top-denied", top_denied, true);
  drawTop("top-spent", top_spent, false);
  drawLast(last_denials);
}

function svg(name, attributes) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  return element;
}

function drawChart() {
  state.drawn = structuredClone(state.history);
  const { allowed, denied, degraded } = state.drawn;
  const count = allowed.length;
  const most = Math.max(1, ...allowed.map((value, index) => value + denied[index]));
  const x = (index) => 1200 * (1 - (count - 1 - index) / chartSeconds());
  const y = (value) => 168 - (160 * value) / most;
  const area = (top, bottom, name) => svg("polygon", {
    class: name,
    points: [...top.map((value, index) => `${x(index)},${y(value)}`), ...bottom.map((value, index) => `${x(index)},${y(value)}`).reverse()].join(" "),
  });
  const line = (points, name) => svg("polyline", { class: name, points: points.map((value, index) => `${x(index)},${y(value)}`).join(" ") });
  const zero = allowed.map(() => 0);
  const stacked = allowed.map((value, index) => value + denied[index]);
  const parts = [0.25, 0.5, 0.75, 1].map((part) => svg("line", { class: "grid", x1: 0, x2: 1200, y1: y(most * part), y2: y(most * part) }));
  parts.push(area(allowed, zero, "area-allow"), area(stacked, allowed, "area-deny"));
  if (degraded.some((value) => value > 0)) parts.push(line(degraded, "line-degraded"));
  $("chart").replaceChildren(...parts);
  $("chart").setAttribute("aria-label",
    `Decisions a second in the last ${duration(count)}: now ${number.format(allowed.at(-1) ?? 0)} allowed and ${number.format(denied.at(-1) ?? 0)} denied, at most ${number.format(most)}`);
  $("chart-scale").textContent = `${number.format(most)} /s`;
  $("chart-span").textContent = duration(chartSeconds() + 1);
}

/** Returns the number of seconds between the left and the right edge of the chart. */
const chartSeconds = () => Math.max(POINTS_MIN, state.drawn.allowed.length) - 1;

/** Shows the figures of the second under the pointer. */
function showValue(event) {
  const { left, width } = $("chart").getBoundingClientRect();
  const { allowed, denied, degraded } = state.drawn;
  const ago = Math.round((1 - (event.clientX - left) / width) * chartSeconds());
  const index = allowed.length - 1 - ago;
  $("chart-value").hidden = index < 0 || index >= allowed.length;
  if ($("chart-value").hidden) return;
  const without = degraded[index] > 0 ? `, ${number.format(degraded[index])} without the store` : "";
  $("chart-value").textContent = `${ago === 0 ? "now" : `${duration(ago)} ago`}: ${number.format(allowed[index])} allowed, ${number.format(denied[index])} denied${without}`;
}

function cell(row, className, ...children) {
  const element = row.insertCell();
  if (className) element.className = className;
  element.append(...children);
  return element;
}

function element(name, className, text) {
  const made = document.createElement(name);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;
  return made;
}

function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/**
 * Updates a table in place: rows keep their elements, so that the focus stays where the keyboard left it.
 * `create` fills a new row and returns a function that updates it. Items that are alike have a row each.
 */
function drawRows(tableId, items, keyOf, create, empty) {
  const body = $(tableId).tBodies[0];
  const rows = (body.rowsByKey ??= new Map());
  const counts = new Map();
  const keys = items.map((item) => {
    const key = keyOf(item);
    counts.set(key, (counts.get(key) ?? 0) + 1);
    return `${key} ${counts.get(key)}`;
  });
  const wanted = new Set(keys);
  for (const [key, { row }] of rows) {
    if (!wanted.has(key)) { row.remove(); rows.delete(key); }
  }
  let place = body.firstElementChild;
  for (const [index, item] of items.entries()) {
    const key = keys[index];
    let known = rows.get(key);
    if (!known) {
      const row = document.createElement("tr");
      row.setAttribute("role", "row");
      known = { row, update: create(row, item) };
      labelCells(row, $(tableId).tHead.rows[0].cells);
      rows.set(key, known);
    }
    known.update(item);
    if (known.row !== place) body.insertBefore(known.row, place);
    else place = place.nextElementSibling;
  }
  body.emptyRow?.remove();
  if (items.length === 0) {
    body.emptyRow = document.createElement("tr");
    body.emptyRow.setAttribute("role", "row");
    const only = cell(body.emptyRow, "empty", empty);
    only.setAttribute("role", "cell");
    only.colSpan = $(tableId).tHead.rows[0].cells.length;
    body.append(body.emptyRow);
  }
}

/** Gives each cell the heading of its column, which a narrow page shows beside it. */
function labelCells(row, headings) {
  for (const [index, cell] of [...row.cells].entries()) {
    cell.setAttribute("role", "cell");
    cell.dataset.label = headings[index].textContent;
  }
}

function idCode(entry) {
  const shown = shownId(entry);
  const code = element("code", "", shortened(shown));
  if (code.textContent !== shown) {
    code.title = shown;
    // Nobody can point on a phone.
    code.addEventListener("click", () => setText(code, code.textContent === shown ? shortened(shown) : shown));
  }
  return code;
}

function drawLimits(limits) {
  const busiest = [...limits].sort((a, b) => b.allowed + b.denied - (a.allowed + a.denied) || (a.name < b.name ? -1 : 1));
  drawRows("limits", busiest, limitKey, (row, limit) => {
    const name = cell(row, "", limit.name);
    if (limit.kind !== "limit") name.append(" ", element("span", "pill", limit.kind));
    const numbers = element("code");
    cell(row, "", numbers);
    const spark = svg("svg", { class: "spark", viewBox: "0 0 110 20", preserveAspectRatio: "none", "aria-hidden": "true" });
    const line = svg("polyline", {});
    spark.append(line);
    cell(row, "", spark);
    const rate = cell(row, "number");
    const denied = cell(row, "number");
    const share = element("div", "share"), bar = element("div", "bar"), fill = element("i"), text = element("span");
    bar.append(fill);
    share.append(bar, text);
    cell(row, "", share);
    return (now) => {
      setText(numbers, now.numbers);
      line.setAttribute("points", sparkPoints(state.sparks.get(limitKey(now))?.decided ?? []));
      setText(rate, number.format(now.allowed + now.denied));
      setText(denied, number.format(now.denied));
      denied.className = now.denied > 0 ? "number deny" : "number";
      fill.style.width = `${100 * (now.denied_share ?? 0)}%`;
      setText(text, percent(now.denied_share));
    };
  }, "No limits are configured.");
}

function sparkPoints(points) {
  const most = Math.max(1, ...points);
  const steps = Math.max(SPARK_POINTS_MIN, points.length) - 1;
  return points.map((value, index) => `${110 * (1 - (points.length - 1 - index) / steps)},${19 - (18 * value) / most}`).join(" ");
}

function drawStore(store, gates) {
  const rows = [];
  if (store.max_buckets !== null && store.max_buckets !== undefined) {
    rows.push({ name: "buckets in memory", state: `${number.format(store.buckets)} of ${number.format(store.max_buckets)}`, level: store.buckets > 0.9 * store.max_buckets ? "warn" : "" });
    if (store.max_client_buckets) rows.push({ name: "of them made by clients", state: `${number.format(store.client_buckets)} of ${number.format(store.max_client_buckets)}`, level: store.client_buckets > 0.9 * store.max_client_buckets ? "warn" : "" });
  }
  for (const node of store.nodes) {
    const level = node.state === "up" ? "allow" : node.state === "unreachable" ? "deny" : "warn";
    const since = node.state === "up" || node.for === undefined || node.for === null ? "" : ` for ${duration(node.for)}`;
    rows.push({ name: `redis ${node.address}`, state: `${node.state}${since}${node.reason ? `: ${node.reason}` : ""}`, level });
  }
  for (const gate of gates) {
    const connections = gate.max_connections === null || gate.max_connections === undefined ? "" : counted(gate.connections, "connection");
    const requests = gate.requests === null || gate.requests === undefined ? "" : `${number.format(gate.requests)} /s`;
    const trouble = [gate.refused > 0 ? `${number.format(gate.refused)} refused` : "", gate.evicted > 0 ? `${number.format(gate.evicted)} evicted` : ""];
    rows.push({ name: `${gate.name} ${gate.address}`, state: [requests, connections, ...trouble].filter(Boolean).join(" · ") || "no figures", level: gate.refused > 0 ? "warn" : "" });
  }
  drawRows("store", rows, (row) => row.name, (row, item) => {
    cell(row, "", item.name);
    const text = cell(row, "number");
    return (now) => {
      setText(text, now.state);
      text.className = `number ${now.level}`;
      text.style.whiteSpace = "normal";
    };
  }, "Nothing is reported.");
}

/** Returns the bucket of an entry, or null if the page cannot name it to the server. */
function bucketOf({ kind, limit, id: shown }) {
  const id = kind === "limit" && state.snapshot?.server.show_ids === "plain" ? exactId(shown) : null;
  return id === null ? null : { limit, id, shown };
}

function button(text, label, onClick) {
  const made = element("button", "", text);
  made.type = "button";
  made.setAttribute("aria-label", label);
  made.addEventListener("click", onClick);
  return made;
}

function actions(row, entry, withReset) {
  const place = cell(row, "actions");
  const bucket = bucketOf(entry);
  if (!bucket) return;
  place.append(button("explain", `Explain ${entry.limit} ${entry.id}`, () => explainBucket(bucket)));
  if (withReset) place.append(" ", resetButton(bucket));
}

const resetButton = (bucket) => button("reset", `Reset ${bucket.limit} ${bucket.shown}`, () => askReset(bucket));

function drawTop(tableId, entries, denied) {
  drawRows(tableId, entries, ({ kind, limit, id }) => JSON.stringify([kind, limit, id]), (row, entry) => {
    cell(row, "", entry.limit);
    cell(row, "", idCode(entry));
    const count = cell(row, denied ? "number deny" : "number");
    const reason = denied ? cell(row, "dim") : null;
    const free = denied ? cell(row, "") : null;
    actions(row, entry, denied);
    return (now) => {
      setText(count, range(now));
      if (reason) setText(reason, why(now));
      if (free) setText(free, now.retry_after === 0 ? "now" : duration(now.retry_after));
    };
  }, denied ? "Nobody was denied in the last minute." : "Nobody spent anything in the last minute.");
}

function drawLast(denials) {
  const keyOf = ({ at, gate, kind, limit, id, cost, retry_after: retry }) => JSON.stringify([at, gate, kind, limit, id, cost, retry]);
  drawRows("last-denials", denials, keyOf, (row, denial) => {
    cell(row, "", time(denial.at));
    cell(row, "", element("span", "pill", denial.gate));
    cell(row, "", denial.limit);
    cell(row, "", idCode(denial));
    cell(row, "number", number.format(denial.cost));
    const reason = cell(row, "dim");
    cell(row, "", duration(denial.retry_after));
    actions(row, denial, false);
    return (now) => setText(reason, why(now));
  }, "Nobody was denied since the server started.");
}

// ---- Explaining and resetting ---------------------------------------------------------------------------------------

function showExplanation(title, ...content) {
  $("explanation-title").textContent = title;
  $("explanation-body").replaceChildren(...content);
  $("explanation").hidden = false;
  $("explanation").focus();
  $("explanation").scrollIntoView({ block: "nearest" });
}

function list(pairs) {
  const made = document.createElement("dl");
  for (const [name, value] of pairs) made.append(element("dt", "", name), element("dd", "", value));
  return made;
}

async function explainBucket(bucket) {
  const { limit, id, shown } = bucket;
  try {
    const found = await ask(`v1/inspect?limit=${encodeURIComponent(limit)}&id=${encodeURIComponent(id)}`);
    const { algorithm, remaining, retry_after: retry, reset_after: reset, state: stored } = found;
    const isInline = limit.startsWith("inline/");
    const numbers = algorithm ? Object.entries(algorithm).map(([name, value]) => (name === "name" ? value : `${name} ${value}`)).join(", ")
      : isInline ? "its numbers come with each request" : "no limit for this id";
    const now = !algorithm ? (isInline ? "Depends on the numbers of the next request." : "Every request passes.")
      : retry === 0 ? `The next request of cost 1 passes: ${remaining} left.`
      : retry === null ? "Denied now, and waiting does not help."
      : `Denied now. One more request passes in ${duration(retry)}.`;
    showExplanation(`${limit} ${shown}`, list([
      ["now", now],
      ["limit", numbers],
      ["left", remaining === null ? "–" : String(remaining)],
      ["full again in", duration(reset)],
      ["stored", stored ? Object.entries(stored).map(([name, value]) => `${name} ${value}`).join(", ") : "nothing: no request of this id is remembered"],
      ["as of", found.at],
    ]), resetButton(bucket));
  } catch (error) {
    showExplanation(`${limit} ${shown}`, element("p", "deny", error.message));
  }
}

async function explainRule(rule, selectors) {
  try {
    const found = await ask("v1/explain", { rule, selectors });
    const reached = found.tree.reached;
    const now = !reached ? "A request would be allowed." : `A request would be denied${found.tree.frees_after === null ? "" : `, and allowed in ${duration(found.tree.frees_after)}`}.`;
    const tree = element("ul", "tree");
    tree.append(branch(found.tree));
    showExplanation(rule, list([["now", now], ["rule", found.rule], ["as of", found.at]]), tree);
  } catch (error) {
    showExplanation(rule, element("p", "deny", error.message));
  }
}

function branch(node) {
  const item = document.createElement("li");
  const parts = node.or ?? node.and;
  const name = parts ? (node.or ? "Or" : "And") : `${node.rate} in ${node.log ?? "no log: its selector has no value"}`;
  const free = node.frees_after === null ? ", waiting does not help" : `, free in ${duration(node.frees_after)}`;
  item.append(name, " ", element("span", node.reached ? "deny" : "allow", node.reached ? `reached${free}` : "not reached"));
  if (parts) {
    const below = element("ul", "tree");
    below.append(...parts.map(branch));
    item.append(below);
  }
  return item;
}

/** Reads `LIMIT ID`, `LIMIT:ID`, or a rule with its selectors: `upload user=vova`. */
function explain(text) {
  const rules = new Set((state.snapshot?.limits ?? []).filter(({ kind }) => kind === "rule").map(({ name }) => name));
  const [first, ...rest] = text.trim().split(/\s+/);
  if (rules.has(first) || /^(or|and)\(/i.test(first)) {
    const expression = /^(or|and)\(/i.test(first) ? text.trim().slice(0, text.trim().lastIndexOf(")") + 1) : first;
    const selectors = Object.fromEntries(rest.filter((word) => /^\w+=/.test(word)).map((word) => [word.slice(0, word.indexOf("=")), word.slice(word.indexOf("=") + 1)]));
    return explainRule(expression, selectors);
  }
  // Only one colon: an id may begin with others, as the address ::1 does.
  const [, limit, id] = text.trim().match(/^([^\s:]+)(?:\s+|:)(.+)$/) ?? [];
  if (id !== undefined) return explainBucket({ limit, id, shown: id });
  return showExplanation("Explain", element("p", "", "Type a limit and an id (Login alice), or a rule and its selectors (upload user=vova)."));
}

function askReset(bucket) {
  state.resetting = bucket;
  $("reset-limit").textContent = bucket.limit;
  $("reset-id").textContent = bucket.shown;
  $("reset-error").textContent = "";
  $("reset-dialog").showModal();
}

async function confirmReset() {
  const { limit, id, shown } = state.resetting;
  try {
    await ask("v1/reset", { limit, id });
    $("reset-dialog").close();
    $("announce").textContent = `${limit} ${shown} is reset.`;
    if (!$("explanation").hidden) await explainBucket(state.resetting);
  } catch (error) {
    $("reset-error").textContent = `Not reset: ${error.message}`;
  }
}

// ---- Start ----------------------------------------------------------------------------------------------------------

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  localStorage.setItem("tollway-theme", theme);
}

const stored = localStorage.getItem("tollway-theme");
if (stored) setTheme(stored);
$("theme").addEventListener("click", () => {
  const dark = getComputedStyle(document.documentElement).colorScheme === "dark";
  setTheme(dark ? "light" : "dark");
});
$("pause").addEventListener("click", () => {
  state.paused = !state.paused;
  $("pause").setAttribute("aria-pressed", String(state.paused));
  $("pause").textContent = state.paused ? "Go on" : "Pause";
  if (!state.paused && state.snapshot) render();
});
$("explain-form").addEventListener("submit", (event) => {
  event.preventDefault();
  explain($("explain-input").value);
});
$("explanation-close").addEventListener("click", () => {
  $("explanation").hidden = true;
  $("explain-input").focus();
});
$("reset-confirm").addEventListener("click", confirmReset);
// A table that a narrow page shows as cards would otherwise be none for a screen reader.
for (const table of document.querySelectorAll("table.cards")) {
  table.setAttribute("role", "table");
  for (const part of [table.tHead, ...table.tBodies]) part.setAttribute("role", "rowgroup");
  table.tHead.rows[0].setAttribute("role", "row");
  for (const heading of table.tHead.rows[0].cells) heading.setAttribute("role", "columnheader");
}
$("chart").addEventListener("pointermove", showValue);
$("chart").addEventListener("pointerleave", () => { $("chart-value").hidden = true; });
run();
