// The page over runs. Everything is built from JSON as elements and texts; nothing that a folder says is read as html.
/* global d3, Plot */

const EVERY = { running: 1000, still: 3000 }; // ms between looks
const main = document.getElementById("main");
const told = document.getElementById("told");
const picked = new Set();
const MOST = 12; // series that are shown at first
const COMPARED = 12; // runs beside each other, as many as the server takes
let leave = () => {}; // ends what the view before had going

// --- small things ----------------------------------------------------------------------------------------------------

function h(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value == null || value === false) continue;
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (key in made && typeof value !== "string") made[key] = value;
    else made.setAttribute(key, value === true ? "" : value);
  }
  made.append(...children.flat().filter((child) => child != null && child !== ""));
  return made;
}

async function ask(what, params = {}) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(params)) for (const one of [value].flat()) query.append(name, one);
  const answer = await fetch(`/api/${what}?${query}`);
  if (!answer.ok) throw new Error((await answer.text()).trim() || `the server answers ${answer.status}`);
  return answer.json();
}

const link = (what, params) => `/api/${what}?${new URLSearchParams(params)}`;
const numbers = (text, Kind) => new Kind(Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0)).buffer);
const count = (value) => Number(value).toLocaleString("en");
const when = (text) => {
  const date = new Date(text);
  return Number.isNaN(date.getTime()) ? text : date.toLocaleString([], { dateStyle: "medium", timeStyle: "short" });
};

function short(value) {
  const size = Math.abs(value);
  if (!Number.isFinite(value)) return "–";
  if (size >= 1e15 || (size > 0 && size < 1e-4)) return value.toExponential(2).replace(/\.?0+e/, "e");
  if (size >= 1e9) return `${+(value / 1e9).toPrecision(4)}G`;
  if (size >= 1e6) return `${+(value / 1e6).toPrecision(4)}M`;
  if (size >= 1e4) return `${+(value / 1e3).toPrecision(4)}k`;
  return String(+value.toPrecision(4));
}

const state = (word) => h("span", { class: `state ${word}` }, word || "–");
const progress = (run) => (run.counted ? `${count(run.count)}${run.goal && run.goal !== run.count ? ` of ${count(run.goal)}` : ""} ${run.counted}` : "");
const note = (text) => h("p", { class: "note warn", role: "alert" }, text);

// Looks again and again while the page is visible; a look that takes long is not followed by a heap of others.
function looking(look, pause) {
  let timer = 0, over = false, at = 0, failed = false;
  async function again() {
    clearTimeout(timer);
    if (over || document.hidden) return;
    const mine = ++at;
    try {
      await look();
      if (failed && !over) { failed = false; told.textContent = ""; }
    } catch (error) {
      if (!over) { failed = true; told.textContent = `No answer: ${error.message}. Is denizen ui still running?`; }
    }
    if (mine === at && !over) timer = setTimeout(again, failed ? EVERY.still : pause());
  }
  document.addEventListener("visibilitychange", again);
  again();
  return () => { over = true; clearTimeout(timer); document.removeEventListener("visibilitychange", again); };
}

// --- the list --------------------------------------------------------------------------------------------------------

const list = { text: "", by: "started", down: true };
const COLUMNS = [
  ["name", "Run", ""], ["what", "Model", "wide"], ["kind", "Kind", "wide"], ["status", "State", ""],
  ["count", "Progress", ""], ["started", "Started", "wide"], ["settings", "Settings", "wide"],
];

function listView() {
  document.title = "Runs – denizen";
  let held = null;
  const filter = h("input", { type: "search", id: "filter", placeholder: "name, model, state, setting=value", value: list.text });
  const compare = h("button", { type: "button", disabled: true });
  const body = h("tbody");
  const shown = h("span", { class: "quiet", role: "status" });
  const notes = h("div");
  const heads = COLUMNS.map(([key, label, cls]) => {
    const button = h("button", { type: "button", onclick: () => { list.down = list.by === key ? !list.down : key === "started"; list.by = key; draw(); } }, label);
    return h("th", { scope: "col", class: cls, "data-key": key }, key === "settings" ? label : button);
  });
  const table = h("table", { class: "list" }, h("thead", {}, h("tr", {}, h("th", { class: "pick", scope: "col" }, h("span", { class: "skip" }, "Compare")), heads)), body);
  main.replaceChildren(h("h1", {}, "Runs"), h("div", { class: "bar" }, h("label", { for: "filter" }, "Filter"), filter, compare, shown), notes, h("div", { class: "scrolls", tabindex: "0", role: "region", "aria-label": "Runs" }, table));

  filter.addEventListener("input", () => { list.text = filter.value; draw(); });
  compare.addEventListener("click", () => { location.hash = `#/compare/${[...picked].map(encodeURIComponent).join("/")}`; });
  const keys = (event) => { if (event.key === "/" && document.activeElement !== filter) { event.preventDefault(); filter.focus(); } };
  document.addEventListener("keydown", keys);

  const rows = new Map(); // id -> [version, row], so that a look changes only what has changed
  const settings = (run) => Object.entries(run.keys).map(([name, value]) => `${name}=${value}`).join("  ");
  function rowOf(run) {
    const known = rows.get(run.id);
    if (known?.[0] === run.version) return known[1];
    const box = h("input", { type: "checkbox", "aria-label": `compare ${run.path}`, checked: picked.has(run.id) });
    box.addEventListener("change", () => { if (box.checked) picked.add(run.id); else picked.delete(run.id); chosen(); });
    const place = run.path === run.name ? null : h("small", { class: "quiet" }, run.path.slice(0, -run.name.length - 1));
    const row = h("tr", {}, h("td", { class: "pick" }, box),
      h("td", { class: "name" }, h("a", { href: `#/run/${encodeURIComponent(run.id)}` }, run.name), place, run.error ? h("small", {}, run.error) : null),
      h("td", { class: "wide" }, run.what), h("td", { class: "wide" }, run.kind), h("td", {}, state(run.status)),
      h("td", {}, progress(run)), h("td", { class: "wide date" }, when(run.started)), h("td", { class: "wide quiet" }, settings(run)));
    rows.set(run.id, [run.version, row]);
    return row;
  }
  function chosen() {
    const there = [...picked].filter((id) => held?.runs.some((run) => run.id === id));
    for (const id of picked) if (!there.includes(id)) picked.delete(id);
    compare.disabled = picked.size < 2 || picked.size > COMPARED;
    compare.textContent = picked.size < 2 ? "Compare (pick two)" : picked.size > COMPARED ? `Compare (at most ${COMPARED}, picked ${picked.size})` : `Compare ${picked.size}`;
  }
  const value = (run) => (list.by === "count" ? run.count : String(run[list.by] ?? "").toLowerCase());
  function draw() {
    for (const head of heads) {
      const own = head.dataset.key === list.by;
      if (own) head.setAttribute("aria-sort", list.down ? "descending" : "ascending"); else head.removeAttribute("aria-sort");
    }
    if (!held) return;
    const words = list.text.toLowerCase().split(/\s+/).filter(Boolean);
    const runs = held.runs.filter((run) => {
      const text = `${run.path} ${run.what} ${run.kind} ${run.status} ${settings(run)}`.toLowerCase();
      return words.every((word) => text.includes(word));
    });
    const sign = list.down ? -1 : 1;
    runs.sort((a, b) => sign * (value(a) < value(b) ? -1 : value(a) > value(b) ? 1 : 0) || (a.path < b.path ? -1 : 1));
    const focus = document.activeElement;
    body.replaceChildren(...runs.map(rowOf));
    if (focus?.isConnected && focus !== document.activeElement) focus.focus();
    shown.textContent = runs.length === held.runs.length ? `${count(runs.length)} runs` : `${count(runs.length)} of ${count(held.runs.length)} runs`;
    notes.replaceChildren(...held.missing.map((folder) => note(`The folder ${folder} is gone.`)),
      ...(held.cut ? [note(`There are more runs than are listed here. Name a folder further down: denizen ui FOLDER`)] : []),
      ...(held.runs.length ? [] : [h("p", {}, `No runs in ${held.folders.join(", ")} yet. They appear here as soon as one begins, for example by `, h("code", {}, "denizen run covid"), ".")]));
    table.hidden = !held.runs.length;
    chosen();
    document.body.dataset.drawn = "list";
  }
  chosen();
  const stop = looking(async () => {
    const found = await ask("runs", held ? { have: held.version } : {});
    if (found.same) return;
    held = found;
    for (const id of rows.keys()) if (!held.runs.some((run) => run.id === id)) rows.delete(id);
    document.querySelector("[data-page=findings]").hidden = !held.findings;
    draw();
  }, () => (held?.runs.some((run) => run.status === "running") ? EVERY.running : EVERY.still));
  return () => { stop(); document.removeEventListener("keydown", keys); };
}

// --- curves ----------------------------------------------------------------------------------------------------------

const colour = (k) => `var(--c${k % 8})`;
const dash = (k) => (k % 16 < 8 ? null : "5 3");
const swatch = (k) => (dash(k) ? `repeating-linear-gradient(90deg, ${colour(k)} 0 5px, transparent 5px 8px)` : colour(k));

function unpacked(curve) {
  for (const name of ["x", "y", "low", "high"]) if (typeof curve[name] === "string") curve[name] = numbers(curve[name], Float64Array);
  return curve;
}

// One chart: a curve of each run, with its band.
function chart(lines, width, unit) {
  let low = Infinity, high = -Infinity;
  for (const { curve } of lines) for (const part of [curve.y, curve.low, curve.high]) if (part) for (const value of part) if (Number.isFinite(value)) { if (value < low) low = value; if (value > high) high = value; }
  if (low > high) return h("p", { class: "quiet" }, "No numbers yet.");
  if (low > 0 && low < 0.6 * high) low = 0;
  if (low === high) { low -= low ? Math.abs(low) * 0.1 : 0; high += high ? Math.abs(high) * 0.1 : 1; }
  const marks = [
    Plot.gridY({ ticks: 5, stroke: "var(--line)", strokeOpacity: 1 }),
    Plot.axisY({ ticks: 5, tickFormat: short, tickSize: 0, label: null, color: "var(--ink)" }),
    Plot.axisX({ ticks: Math.max(2, Math.floor(width / 90)), tickFormat: short, label: unit || null, labelArrow: "none", color: "var(--ink)" }),
  ];
  for (const { curve, k } of lines) if (curve.low) marks.push(Plot.areaY({ length: curve.x.length }, { x: curve.x, y1: curve.low, y2: curve.high, fill: colour(k), fillOpacity: 0.2 }));
  for (const { curve, k } of lines) {
    const data = { length: curve.x.length };
    if (curve.x.length < 3) marks.push(Plot.dot(data, { x: curve.x, y: curve.y, fill: colour(k), r: 3 }));
    marks.push(Plot.line(data, { x: curve.x, y: curve.y, stroke: colour(k), strokeWidth: 1.8, strokeDasharray: dash(k) }));
  }
  for (const { curve, name } of lines) {
    const title = Array.from(curve.x, (x, i) => `${name ? `${name}\n` : ""}${unit || "at"} ${short(x)}: ${short(curve.y[i])}${curve.low ? ` (${short(curve.low[i])} – ${short(curve.high[i])})` : ""}`);
    marks.push(Plot.tip({ length: curve.x.length }, Plot.pointer({ x: curve.x, y: curve.y, title, fill: "var(--paper)", stroke: "var(--line)", maxRadius: 50 })));
  }
  const plot = Plot.plot({
    width, height: Math.round(Math.min(260, Math.max(190, width * 0.5))), marginLeft: 48, marginRight: 12, marginTop: 10, marginBottom: 36,
    x: { type: "linear" }, y: { type: "linear", domain: [low, high], nice: 5 }, marks, style: { overflow: "visible" },
  });
  plot.setAttribute("role", "img");
  plot.setAttribute("aria-label", lines.map(({ curve, name }) => `${name ? `${name}: ` : ""}${curve.name} from ${short(curve.y[0])} to ${short(curve.y[curve.y.length - 1])} at ${unit} ${short(curve.x[curve.x.length - 1])}`).join("; "));
  for (const part of plot.querySelectorAll("[aria-label]")) part.removeAttribute("aria-label");
  return plot;
}

// Charts of all series, drawn when they come into sight and again when they change.
function panels(place) {
  const known = new Map();
  const draw = (panel) => {
    const width = Math.floor(panel.chart.clientWidth);
    if (width < 60 || !panel.lines.length) return;
    panel.chart.replaceChildren(chart(panel.lines, width, panel.unit));
    panel.drawn = width;
    if (!document.body.dataset.drawn) performance.mark("drawn"); // benchmarks read it
    document.body.dataset.drawn = "curves";
  };
  const sight = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      const panel = known.get(entry.target.dataset.series);
      if (!panel) continue;
      panel.seen = entry.isIntersecting;
      if (panel.seen && panel.stale) { panel.stale = false; draw(panel); }
    }
  }, { rootMargin: "200px" });
  const width = new ResizeObserver(() => {
    for (const panel of known.values()) if (Math.floor(panel.chart.clientWidth) !== panel.drawn) { if (panel.seen) draw(panel); else panel.stale = true; }
  });
  width.observe(place);
  return {
    show(groups) { // name -> {about, kind, unit, lines}
      for (const [name, panel] of known) if (!groups.has(name)) { sight.unobserve(panel.figure); panel.figure.remove(); known.delete(name); }
      for (const [name, group] of groups) {
        let panel = known.get(name);
        if (!panel) {
          panel = { chart: h("div", { class: "chart" }), seen: false, stale: true, lines: [] };
          const per = group.kind === "flow" && group.step ? `per ${group.step}` : "";
          const about = [group.about.replace(/\.$/, ""), per].filter(Boolean).join(", ");
          panel.figure = h("figure", { "data-series": name }, h("figcaption", {}, h("h3", {}, name), h("p", {}, about)), panel.chart);
          known.set(name, panel);
          place.append(panel.figure);
          sight.observe(panel.figure);
        }
        panel.lines = group.lines;
        panel.unit = group.unit;
        if (panel.seen) draw(panel); else panel.stale = true;
      }
    },
    stop() { sight.disconnect(); width.disconnect(); },
  };
}

// Curves of some runs in one place, as long as they grow.
function curvesOf(ids, changed = () => {}) {
  const held = new Map(ids.map((id) => [id, null]));
  const notes = h("div");
  const place = h("div", { class: "panels" });
  const filter = h("input", { type: "search", "aria-label": "Filter series", placeholder: "filter series" });
  const link_ = h("a", { class: "button", download: "curves.csv" }, "Export CSV");
  const drawn = panels(place);
  const all = h("button", { type: "button", hidden: true, onclick: () => { most = Infinity; draw(); } });
  let most = MOST;
  const wanted = (name) => filter.value.toLowerCase().split(/\s+/).every((word) => name.toLowerCase().includes(word));
  function draw() {
    const groups = new Map();
    ids.forEach((id, k) => {
      const run = held.get(id);
      for (const curve of run?.curves ?? []) {
        if (!wanted(curve.name)) continue;
        const dt = curve.x[0]; // of a simulation: the first point is the end of its first step
        const step = dt === 1 ? run.unit : `${short(dt)} ${run.unit}`;
        const first = groups.get(curve.name); // what counts time or its steps in another unit has a chart of its own
        const alike = !first || (first.unit === run.unit && (curve.kind !== "flow" || first.step === step));
        const key = alike ? curve.name : `${curve.name} (${curve.kind === "flow" ? `per ${step}` : run.unit})`;
        if (!groups.has(key)) groups.set(key, { about: curve.about, kind: curve.kind, unit: run.unit, step, lines: [] });
        groups.get(key).lines.push({ curve, k, name: ids.length > 1 ? run.name : "" });
      }
    });
    const more = groups.size - most;
    all.hidden = !(more > 0);
    all.textContent = `Show all ${groups.size} series`;
    drawn.show(more > 0 ? new Map([...groups].slice(0, most)) : groups);
    const params = new URLSearchParams(ids.map((id) => ["id", id]));
    if (filter.value) for (const name of groups.keys()) params.append("series", name);
    link_.href = `/api/csv?${params}`;
    link_.hidden = !groups.size;
    const some = [...held.values()];
    const lacking = some.every((run) => run && !run.curves && !run.error && !run.gone);
    notes.replaceChildren(...some.filter((run) => run?.error).map((run) => note(run.error)),
      ...some.filter((run) => run?.gone).map((run) => note(`The folder of ${run.name ?? run.id.replace(/^\d+:/, "")} is gone.${run.curves ? " This is what was last read of it." : ""}`)),
      ...(!groups.size && !filter.value && some.every((run) => run && !run.error && !run.gone) && !lacking ? [h("p", { class: "quiet" }, "No curves yet.")] : []));
    filter.hidden = !filter.value && groups.size < 5;
  }
  filter.addEventListener("input", draw);
  const stop = looking(async () => {
    const column = Math.min(place.clientWidth || innerWidth, 800);
    const found = await ask("curves", { id: ids, have: ids.map((id) => held.get(id)?.version ?? "-"), width: Math.round(column * Math.min(devicePixelRatio, 2)) });
    const news = found.runs.filter((run) => !run.same && !(run.gone && held.get(run.id)?.gone));
    for (const run of news) {
      run.curves?.forEach(unpacked);
      held.set(run.id, run.gone || run.error ? { ...held.get(run.id), ...run, ...(run.gone ? { version: "-", status: "gone" } : {}) } : run);
    }
    if (news.length) { draw(); changed(held); }
  }, () => ([...held.values()].some((run) => run?.status === "running") ? EVERY.running : EVERY.still));
  return { bar: h("div", { class: "bar" }, link_, filter), place: h("div", {}, place, h("p", {}, all)), notes, stop: () => { stop(); drawn.stop(); } };
}

// --- one run ---------------------------------------------------------------------------------------------------------

const pairs = (title, entries) => h("div", { class: "scrolls", tabindex: "0", role: "region", "aria-label": title }, h("table", { class: "settings" }, h("caption", {}, title),
  h("tbody", {}, Object.entries(entries).map(([name, value]) => h("tr", {}, h("th", { scope: "row" }, name), h("td", {}, value))))));

function runView(id) {
  document.title = "Run – denizen";
  const head = h("div"), agents = h("section", { hidden: true }), policy = h("section"), facts = h("section");
  let world = null, asked = false;
  async function tell() {
    const run = await ask("run", { id });
    if (run.gone) {
      if (!asked) head.replaceChildren(h("h1", {}, id.replace(/^\d+:/, "")));
      return;
    }
    asked = true;
    document.title = `${run.name} – denizen`;
    head.replaceChildren(h("h1", {}, run.name),
      h("p", { class: "facts" }, state(run.status), h("span", {}, run.kind), run.what ? h("span", {}, run.what) : null, h("span", {}, progress(run)), h("span", {}, `started ${when(run.started)}`)),
      ...(run.error ? [note(run.error)] : []),
      ...(run.seeds.length ? [h("p", { class: "bar" }, "Seeds:", run.seeds.map((seed) => h("a", { href: `#/run/${encodeURIComponent(seed)}` }, seed.replace(/.*seed-/, ""))))] : []));
    const open = facts.querySelector("details")?.open, said = JSON.stringify([run.settings, run.versions, run.log, run.report]);
    if (facts.dataset.said !== said) facts.replaceChildren(h("h2", {}, "Settings and log"),
      h("div", { class: "two" }, pairs("Settings", run.settings), h("div", {}, pairs("Versions", run.versions), run.log ? h("details", { open }, h("summary", {}, "Log"), h("pre", { class: "log", tabindex: "0" }, run.log)) : null)),
      ...(run.report ? [h("h2", {}, "Fit"), h("pre", { class: "scrolls", tabindex: "0" }, run.report)] : []));
    facts.dataset.said = said; // what is the same stays, with the reader's place in it
    filesOf(run, policy);
    if (run.snapshots_error) agents.replaceChildren(h("h2", {}, "Agents"), note(run.snapshots_error));
    if (run.snapshots?.fields.length) {
      if (!world) world = worldOf(id, run.snapshots, agents);
      world.grown(run.snapshots);
    }
    agents.hidden = !(run.snapshots_error || world);
  }
  const curves = curvesOf([id], () => tell().catch(() => {}));
  main.replaceChildren(head, curves.notes, curves.bar, curves.place, agents, policy, facts);
  return () => { curves.stop(); world?.stop(); };
}

function filesOf(run, place) {
  const address = (name) => link("file", { id: run.id, name });
  const { pictures, films, reports, evaluations, doctor } = run.files;
  const key = JSON.stringify([run.files]);
  if (place.dataset.key === key) return; // a film that plays goes on
  place.dataset.key = key;
  const shown = [
    ...films.map((name) => h("figure", {}, h("figcaption", {}, name), h("video", { controls: true, loop: true, muted: true, playsInline: true, src: address(name), "aria-label": name }))),
    ...pictures.map((name) => h("figure", {}, h("figcaption", {}, name), h("a", { href: address(name) }, h("img", { src: address(name), alt: name, loading: "lazy" })))),
  ];
  place.replaceChildren(
    ...(evaluations.length ? [h("h2", {}, "Evaluation"), ...evaluations.map((one) => h("div", { class: "scrolls", tabindex: "0", role: "region", "aria-label": one.file }, h("table", {}, h("caption", {}, one.file),
      h("thead", {}, h("tr", {}, ["training", "mean return", "95 % interval"].map((text) => h("th", { scope: "col" }, text)))),
      h("tbody", {}, one.rows.map((row) => h("tr", {}, h("th", { scope: "row" }, row.run), h("td", {}, short(row.mean)), h("td", {}, `${short(row.low)} to ${short(row.high)}`)))))))] : []),
    ...(reports.length ? [h("h2", {}, "Reports"), h("p", { class: "bar" }, reports.map((name) => h("a", { href: address(name), target: "_blank", rel: "noopener" }, name)))] : []),
    // What has no curves of its own, such as a calibration, is seen by its report, which has no rights here.
    ...(reports.includes("report.html") && !["simulation", "training"].includes(run.kind) ? [h("iframe", { class: "report", sandbox: "allow-scripts", title: `Report of ${run.name}`, src: address("report.html") })] : []),
    ...(shown.length ? [h("h2", {}, run.kind === "training" ? "The policy and its pictures" : "Pictures"), h("div", { class: "gallery" }, shown)] : []),
    ...(doctor.length ? [h("h2", {}, "Findings of the doctor"), ...doctor.flatMap(report)] : []),
  );
}

// --- agents through time ---------------------------------------------------------------------------------------------

const LEVELS = ["--c1", "--c0", "--c2", "--c3", "--c4", "--c5", "--c7", "--faint"]; // from 1 on

function worldOf(id, first, place) {
  let about = first, at = 0, frame = null, asked = 0, playing = 0, low = Infinity, high = -Infinity, follow = true;
  const cache = new Map();
  const field = h("select", {}, about.fields.map((one) => h("option", { value: one.name }, one.name.replaceAll("_", " "))));
  const replicate = h("select", {}, d3.range(about.replicates).map((k) => h("option", { value: String(k) }, String(k))));
  const slider = h("input", { type: "range", min: "0", max: "0", value: "0", step: "1", "aria-label": "Time" });
  const play = h("button", { type: "button" }, "Play");
  const time = h("output", {});
  const canvas = h("canvas", { width: 512, height: 512, role: "img" });
  const legend = h("div");
  place.replaceChildren(h("h2", {}, "Agents"), h("div", { class: "bar" }, h("label", {}, "Field", field), about.replicates > 1 ? h("label", {}, "Replicate", replicate) : null),
    h("div", { class: "world" }, h("div", {}, canvas, h("div", { class: "bar" }, play, slider, time)), legend));

  const css = (name) => d3.rgb(getComputedStyle(document.documentElement).getPropertyValue(name).trim());
  const paper = () => css("--line");
  function ramp(kind) {
    if (kind === "number") return d3.range(256).map((k) => d3.rgb(d3.interpolateViridis(k / 255)));
    const [from, to] = [paper(), css("--c1")];
    return d3.range(256).map((k) => d3.rgb(d3.interpolateRgb(from, to)(k ? 0.15 + 0.85 * (k / 255) : 0)));
  }
  const levels = () => [frame.form === "cells" ? "--line" : "--faint", ...LEVELS].map(css); // points stand on the paper itself
  function scale() { // of a share and a number; what was seen so far stays in the range, so that colours keep their meaning
    if (frame.kind === "share") return [0, 1];
    low = Math.min(low, frame.low); high = Math.max(high, frame.high);
    return [low, high > low ? high : low + 1];
  }
  function paint() {
    if (!frame) return;
    const values = frame.values, table = frame.kind === "levels" ? null : ramp(frame.kind), own = levels(), [from, to] = scale();
    const of = (value) => (table ? table[Math.max(0, Math.min(255, Math.round((255 * (value - from)) / (to - from))))] : own[value % own.length]);
    const context = canvas.getContext("2d");
    if (frame.form === "cells") {
      const each = Math.max(1, Math.floor(640 / Math.max(frame.width, frame.height)));
      canvas.width = frame.width * each; canvas.height = frame.height * each;
      const image = new ImageData(frame.width, frame.height);
      for (let k = 0; k < values.length; k += 1) {
        if (Number.isNaN(values[k])) continue;
        const { r, g, b } = of(values[k]);
        image.data.set([r, g, b, 255], 4 * k);
      }
      const small = new OffscreenCanvas(frame.width, frame.height);
      small.getContext("2d").putImageData(image, 0, 0);
      context.imageSmoothingEnabled = false;
      context.drawImage(small, 0, 0, canvas.width, canvas.height);
    } else {
      const [x0, x1, y0, y1] = frame.box;
      const wide = Math.max(x1 - x0, 1e-9), tall = Math.max(y1 - y0, 1e-9);
      const unit = 640 / Math.max(wide, tall), pad = 12;
      canvas.width = Math.max(160, Math.round(wide * unit)) + 2 * pad; canvas.height = Math.max(160, Math.round(tall * unit)) + 2 * pad;
      const px = (x) => pad + ((x - x0) / wide) * (canvas.width - 2 * pad), py = (y) => canvas.height - pad - ((y - y0) / tall) * (canvas.height - 2 * pad);
      if (frame.edges) {
        context.strokeStyle = css("--faint").copy({ opacity: 0.35 }).toString();
        context.beginPath();
        const half = frame.edges.length / 2;
        for (let k = 0; k < half; k += 1) {
          context.moveTo(px(frame.x[frame.edges[k]]), py(frame.y[frame.edges[k]]));
          context.lineTo(px(frame.x[frame.edges[k + half]]), py(frame.y[frame.edges[k + half]]));
        }
        context.stroke();
      }
      const size = values.length > 4000 ? 2 : values.length > 500 ? 3.5 : 7;
      const order = d3.sort(d3.range(values.length), (k) => values[k]); // what is rare lies above
      for (const k of order) {
        context.fillStyle = of(values[k]).toString();
        context.fillRect(px(frame.x[k]) - size / 2, py(frame.y[k]) - size / 2, size, size);
      }
    }
    const what = frame.form === "cells" && about.fields.find((one) => one.name === frame.field)?.form === "grid" ? "cells" : "agents";
    const share = (n) => `${count(n)} (${short((100 * n) / frame.total)} %)`;
    const thinned = frame.each > 1 ? `Each point stands for ${count(frame.each)} of ${count(frame.total)} ${what}; the numbers count all.` : `${count(frame.total)} ${what}.`;
    const parts = [h("p", { class: "quiet" }, thinned)];
    if (frame.kind === "number") {
      const bar = h("div", { class: "ramp" });
      bar.style.background = `linear-gradient(to right, ${d3.range(0, 256, 15).map((k) => table[k].toString()).join(", ")})`;
      parts.push(bar, h("p", {}, h("span", {}, short(from)), h("span", {}, short(to))), h("p", {}, `mean ${short(frame.mean)}`));
    } else {
      parts.push(h("table", {}, h("caption", {}, `${frame.field.replaceAll("_", " ")}`), h("tbody", {}, levelled().map(([level, n]) => {
        const swatch = h("span", { class: "swatch" });
        swatch.style.background = of(Number(level)).toString();
        const name = frame.kind === "share" ? (level === "1" ? "yes" : "no") : frame.names?.[level] ?? level;
        return h("tr", {}, h("th", { scope: "row" }, swatch, name), h("td", { class: "number" }, share(n)));
      }))));
    }
    legend.replaceChildren(...parts);
    const words = frame.kind === "number" ? `mean ${short(frame.mean)}` : levelled().map(([level, n]) => `${frame.kind === "share" ? (level === "1" ? "yes" : "no") : frame.names?.[level] ?? level}: ${n}`).join(", ");
    const now = `${about.unit} ${short(frame.step * about.dt)}`;
    time.textContent = now;
    slider.setAttribute("aria-valuetext", now);
    canvas.setAttribute("aria-label", `${frame.field} at ${now}: ${words}`);
    canvas.dataset.step = frame.step;
  }
  let layout = null;
  function laidOut({ values, edges }) { // where the agents of a network stand, which the folder does not say
    if (layout) return layout;
    const nodes = d3.range(values.length).map(() => ({})), half = edges.length / 2;
    const links = d3.range(half).map((k) => ({ source: edges[k], target: edges[k + half] }));
    d3.forceSimulation(nodes).force("link", d3.forceLink(links).distance(12).iterations(1)).force("charge", d3.forceManyBody().strength(-20).theta(1.2))
      .force("x", d3.forceX().strength(0.06)).force("y", d3.forceY().strength(0.06)).stop().tick(nodes.length > 500 ? 120 : 250);
    const [x, y] = ["x", "y"].map((axis) => Float32Array.from(nodes, (node) => node[axis]));
    layout = { x, y, box: [...d3.extent(x), ...d3.extent(y)] };
    return layout;
  }
  // All levels that have names, so that the legend keeps its lines.
  const levelled = () => (frame.kind === "levels" && frame.names.length ? frame.names.map((_, k) => [String(k), frame.counts[k] ?? 0]) : Object.entries(frame.counts));
  async function show() {
    const mine = ++asked, key = `${field.value} ${at} ${replicate.value}`;
    try {
      if (!cache.has(key)) {
        const found = await ask("agents", { id, field: field.value, place: at, replicate: replicate.value });
        if (found.gone) { time.textContent = "gone"; return; }
        if (found.error) { legend.replaceChildren(note(found.error)); return; }
        for (const name of ["values", "x", "y"]) if (found[name]) found[name] = numbers(found[name], Float32Array);
        if (found.edges) found.edges = numbers(found.edges, Int32Array);
        if (found.form === "network") Object.assign(found, laidOut(found));
        if (cache.size > 60) cache.delete(cache.keys().next().value);
        cache.set(key, found);
      }
      if (mine === asked) { frame = cache.get(key); paint(); }
    } catch (error) {
      told.textContent = `No answer: ${error.message}`;
    }
  }
  const to = (k) => { at = Math.max(0, Math.min(about.steps.length - 1, k)); slider.value = String(at); return show(); };
  function halt() { clearTimeout(playing); playing = 0; play.textContent = "Play"; }
  async function on() {
    if (at >= about.steps.length - 1) return halt();
    await to(at + 1);
    if (playing) playing = setTimeout(on, 120);
  }
  play.addEventListener("click", () => {
    if (playing) return halt();
    play.textContent = "Pause";
    playing = 1;
    if (at >= about.steps.length - 1) to(0);
    playing = setTimeout(on, 120);
  });
  slider.addEventListener("input", () => { halt(); follow = Number(slider.value) === about.steps.length - 1; to(Number(slider.value)); });
  const fresh = () => { low = Infinity; high = -Infinity; show(); };
  field.addEventListener("change", fresh);
  replicate.addEventListener("change", show);
  const dark = matchMedia("(prefers-color-scheme: dark)");
  dark.addEventListener("change", paint);
  return {
    grown(now) {
      const more = now.steps.length !== about.steps.length || !frame;
      about = now;
      slider.max = String(about.steps.length - 1);
      if (more) to(follow ? about.steps.length - 1 : at);
    },
    stop() { halt(); dark.removeEventListener("change", paint); },
  };
}

// --- comparison ------------------------------------------------------------------------------------------------------

function compareView(asked) {
  const ids = asked.slice(0, COMPARED);
  document.title = "Comparison – denizen";
  const differing = h("section");
  const legend = h("ul", { class: "runs-legend" });
  let known = "";
  async function tell(held) {
    const runs = await Promise.all(ids.map((id) => ask("run", { id })));
    const names = ids.map((id, k) => runs[k].name ?? held.get(id)?.name ?? id.replace(/^\d+:/, ""));
    legend.replaceChildren(...ids.map((id, k) => {
      const line = h("i");
      line.style.background = swatch(k);
      return h("li", {}, line, h("a", { href: `#/run/${encodeURIComponent(id)}` }, names[k]), " ", state(runs[k].status ?? "gone"));
    }));
    const all = [...new Set(runs.flatMap((run) => Object.keys(run.settings ?? {})))].sort();
    const rows = all.map((name) => [name, runs.map((run) => run.settings?.[name] ?? "–")]).filter(([, values]) => new Set(values).size > 1);
    const key = JSON.stringify([names, rows]);
    if (key === known) return;
    known = key;
    differing.replaceChildren(h("h2", {}, "What differs"), rows.length
      ? h("div", { class: "scrolls", tabindex: "0", role: "region", "aria-label": "What differs" }, h("table", {}, h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "setting"), names.map((name) => h("th", { scope: "col" }, name)))),
        h("tbody", {}, rows.map(([name, values]) => h("tr", {}, h("th", { scope: "row" }, name), values.map((value) => h("td", {}, value)))))))
      : h("p", {}, "All settings are the same."));
  }
  const curves = curvesOf(ids, (held) => tell(held).catch(() => {}));
  const over = asked.length - ids.length;
  main.replaceChildren(h("h1", {}, `Comparison of ${ids.length} runs`), over ? note(`${over} more are left out: a comparison is of at most ${COMPARED}.`) : "", legend, curves.notes, curves.bar, curves.place, differing);
  return curves.stop;
}

// --- findings --------------------------------------------------------------------------------------------------------

function report(one) {
  return [h("h3", { class: "verdict" }, `${one.file}: ${one.verdict}`), ...one.findings.map((found) => h("article", { class: "finding" },
    h("h3", {}, found.kind, " ", h("small", {}, `${found.level}, ${found.period}${found.seconds == null ? "" : `, ${short(1e3 * found.seconds)} ms a step`}`)),
    h("p", { class: "quiet" }, `${found.file}:${found.line}${found.function ? ` in ${found.function}` : ""}`),
    found.code ? h("pre", { tabindex: "0" }, h("code", {}, found.code.trim())) : null,
    found.evidence.map((line) => h("p", {}, line)),
    found.fix ? h("p", {}, h("strong", {}, "Instead: "), found.fix) : null))];
}

function findingsView() {
  document.title = "Findings – denizen";
  main.replaceChildren(h("h1", {}, "Findings of the doctor"));
  ask("findings").then(({ reports }) => {
    main.append(...(reports.length ? reports.flatMap(report) : [h("p", {}, "None. Keep a report beside your runs: ", h("code", {}, "denizen doctor train.py:make --json > runs/doctor.json"))]));
    document.body.dataset.drawn = "findings";
  }).catch((error) => main.append(note(error.message)));
  return () => {};
}

// --- which view ------------------------------------------------------------------------------------------------------

function route() {
  const [view, ...ids] = location.hash.replace(/^#\/?/, "").split("/").map((part) => {
    try { return decodeURIComponent(part); } catch { return part; }
  });
  leave();
  delete document.body.dataset.drawn;
  told.textContent = "";
  for (const one of document.querySelectorAll("nav [data-page]")) {
    if ((one.dataset.page === "runs") === (view !== "findings")) one.setAttribute("aria-current", "page"); else one.removeAttribute("aria-current");
  }
  if (view === "run" && ids[0]) leave = runView(ids[0]);
  else if (view === "compare" && ids.length) leave = compareView(ids);
  else if (view === "findings") leave = findingsView();
  else leave = listView();
}

document.querySelector(".skip").addEventListener("click", (event) => { event.preventDefault(); main.focus(); });
addEventListener("hashchange", () => { route(); scrollTo(0, 0); });
route();
