"use strict";
// Draws every chart of the page from the JSON beside it, again whenever its width changes.
(() => {
  const charts = JSON.parse(document.getElementById("charts").textContent);
  const colour = (k) => `var(--c${k % 8})`;
  const dash = (k) => (k % 16 < 8 ? null : "5 3");
  const ink = (k) => `color-mix(in srgb, ${colour(k)} 65%, var(--ink))`;
  const canvas = document.createElement("canvas").getContext("2d");
  canvas.font = "12px system-ui, sans-serif";
  const wide = (text) => canvas.measureText(text).width;

  const short = (value) => {
    const size = Math.abs(value);
    if (size >= 1e15 || (size > 0 && size < 1e-4)) return value.toExponential(3).replace(/\.?0+e/, "e");
    if (size >= 1e9) return `${+(value / 1e9).toPrecision(4)}G`;
    if (size >= 1e6) return `${+(value / 1e6).toPrecision(4)}M`;
    if (size >= 1e4) return `${+(value / 1e3).toPrecision(4)}k`;
    return String(+value.toPrecision(5));
  };
  const long = (value) => (value == null ? "–" : Number(value.toPrecision(6)).toLocaleString("en"));
  const day = (x) => new Date(864e5 * x); // dates come as days since 1970
  const cut = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);

  const element = (name, className, text) => {
    const made = document.createElement(name);
    if (className) made.className = className;
    if (text) made.textContent = text;
    return made;
  };

  // Names at the ends of lines, moved apart where they would lie on one another.
  function placed(rows, y, top, bottom) {
    const gap = 14;
    rows.sort((a, b) => y(b.value) - y(a.value)).reverse();
    let last = top - gap;
    for (const row of rows) last = row.y = Math.max(y(row.value), last + gap);
    let next = bottom + gap;
    for (const row of [...rows].reverse()) next = row.y = Math.min(row.y, next - gap);
    return rows;
  }

  function common(spec, width, height, left) {
    return {
      width, height, marginLeft: left, marginTop: spec.marks.length ? 22 : 10, marginBottom: 36,
      ariaLabel: spec.words, style: { overflow: "visible" },
    };
  }

  function upright(spec) {
    return [
      Plot.ruleX(spec.marks, { x: "x", stroke: "var(--faint)", strokeDasharray: "2 3" }),
      Plot.text(spec.marks, { x: "x", text: "label", frameAnchor: "top", dy: -14, fill: "var(--faint)" }),
    ];
  }

  function curves(spec, width) {
    const at = spec.dates ? day : (x) => x;
    const points = spec.curves.map((curve) => curve.x.map((x, k) => ({
      x: at(x), y: curve.y[k], low: curve.low?.[k], high: curve.high?.[k], name: curve.name,
    })));
    const values = spec.y ?? points.flat().flatMap((p) => [p.y, p.low, p.high]).filter((v) => v != null);
    let [bottom, top] = values.length ? d3.extent(values) : [0, 1];
    if (spec.zero) bottom = 0;
    if (bottom === top) [bottom, top] = spec.zero ? [0, top || 1] : [bottom - 1, top + 1];
    const scale = d3.scaleLinear([bottom, top], [0, 1]).nice(5);
    const left = Math.max(28, 12 + d3.max(scale.ticks(5), (tick) => wide(short(tick))));
    const several = spec.curves.length > 1;
    const labels = several ? d3.max(spec.curves, (curve) => wide(cut(curve.name, 28))) + 12 : 0;
    const height = spec.small ? Math.min(220, Math.max(170, width * 0.6)) : Math.min(380, Math.max(220, width * 0.45));
    const alike = new Set(spec.curves.map((curve) => cut(curve.name, 28))).size < spec.curves.length; // a legend has whole names
    const direct = several && !alike && labels < width * 0.3 && spec.curves.length * 14 < height - 60;

    const places = spec.curves.flatMap((curve) => curve.x), [first, last] = d3.extent(places);
    let ticks = Math.max(2, Math.floor(width / 90));
    if (!spec.dates && places.every(Number.isInteger) && last - first < ticks) ticks = d3.range(first, last + 1); // not 1.5 epochs
    const marks = [Plot.axisY({ ticks: 5, tickFormat: short, tickSize: 0, label: null, color: "var(--ink)" }),
      Plot.gridY({ ticks: 5, stroke: "var(--line)", strokeOpacity: 1 }),
      Plot.axisX({ ticks, ...(spec.dates ? {} : { tickFormat: short }), label: spec.x_label || null, labelArrow: "none", color: "var(--ink)" }),
      Plot.ruleY([bottom === 0 ? 0 : scale.domain()[0]], { stroke: "var(--faint)" })];
    spec.curves.forEach((curve, k) => {
      if (curve.low) marks.push(Plot.areaY(points[k], { x: "x", y1: "low", y2: "high", fill: colour(curve.colour), fillOpacity: 0.2, curve: "linear" }));
    });
    spec.curves.forEach((curve, k) => {
      const lone = curve.points || curve.x.length === 1;
      marks.push(lone
        ? Plot.dot(points[k], { x: "x", y: "y", r: points[k].length > 150 ? 1.6 : 2.6, fill: colour(curve.colour) })
        : Plot.line(points[k], { x: "x", y: "y", stroke: colour(curve.colour), strokeWidth: 2, strokeDasharray: dash(curve.colour) }));
    });
    marks.push(...upright({ marks: spec.marks.map((mark) => ({ ...mark, x: at(mark.x) })) }), Plot.tip(points.flat().filter((p) => p.y != null), Plot.pointer({
      x: "x", y: "y", fill: "var(--paper)", stroke: "var(--line)", maxRadius: 60,
      title: (p) => `${several ? `${p.name}\n` : ""}${spec.x_label || (spec.dates ? "date" : "place")}: ${spec.dates ? p.x.toISOString().slice(0, 10) : long(p.x)}\n${long(p.y)}${p.low == null ? "" : ` (${long(p.low)} – ${long(p.high)})`}`,
    })));
    const plot = Plot.plot({
      ...common(spec, width, height, left), marginRight: direct ? labels : 14,
      x: { type: spec.dates ? "utc" : "linear" }, y: { type: "linear", domain: scale.domain() }, marks,
    });
    if (direct) {
      const x = plot.scale("x"), y = plot.scale("y");
      const rows = spec.curves.flatMap((curve, k) => {
        const last = points[k].findLast((p) => p.y != null);
        return last ? [{ name: curve.name, colour: curve.colour, value: last.y }] : [];
      });
      d3.select(plot).append("g").attr("text-anchor", "start").selectAll("text").data(placed(rows, y.apply, 12, height - 40)).join("text")
        .attr("x", x.range[1] + 6).attr("y", (row) => row.y).attr("dy", "0.35em")
        .attr("fill", (row) => ink(row.colour)).text((row) => cut(row.name, 28));
    }
    return [plot, several && !direct ? spec.curves : []];
  }

  function intervals(spec, width) {
    const left = Math.min(width * 0.4, 16 + d3.max(spec.rows, (row) => wide(row.name)));
    const most = Math.max(6, Math.floor(left / 7));
    const y = { axis: null, type: "point", padding: 0.6, domain: spec.rows.map((_, k) => k) };
    const rows = spec.rows.map((row, k) => ({ ...row, k }));
    const title = (row) => `${row.name}\n${long(row.middle)} (${long(row.low)} – ${long(row.high)})`;
    return [Plot.plot({
      ...common(spec, width, 50 + (spec.marks.length ? 12 : 0) + 30 * rows.length, left), marginRight: 16, y, x: { type: "linear", nice: true },
      marks: [
        Plot.gridX({ stroke: "var(--line)", strokeOpacity: 1 }),
        Plot.axisX({ ticks: Math.max(2, Math.floor(width / 110)), tickFormat: short, label: spec.x_label || null, labelArrow: "none", color: "var(--ink)" }),
        Plot.text(rows, { y: "k", text: (row) => cut(row.name, most), frameAnchor: "left", textAnchor: "end", dx: -10, fill: "var(--ink)" }),
        Plot.ruleY(rows.filter((row) => row.outer_low != null), { y: "k", x1: "outer_low", x2: "outer_high", stroke: "var(--faint)", strokeWidth: 1.2 }),
        Plot.ruleY(rows, { y: "k", x1: "low", x2: "high", stroke: (row) => colour(row.colour), strokeWidth: 5, strokeOpacity: 0.45 }),
        Plot.dot(rows, { y: "k", x: "middle", r: 4.5, fill: (row) => colour(row.colour) }),
        ...upright(spec),
        Plot.tip(rows, Plot.pointerY({ x: "middle", y: "k", title, fill: "var(--paper)", stroke: "var(--line)" })),
      ],
    }), []];
  }

  function draw(place, spec, width) {
    const [plot, named] = (spec.kind === "curves" ? curves : intervals)(spec, width);
    plot.setAttribute("role", "img");
    for (const part of plot.querySelectorAll("[aria-label]")) part.removeAttribute("aria-label");
    const parts = [];
    if (spec.y_label) parts.push(element("p", "label", spec.y_label));
    if (named.length) {
      const legend = element("ul", "legend");
      for (const curve of named) {
        const item = element("li", "", "");
        const swatch = element("i");
        swatch.style.background = dash(curve.colour) ? `repeating-linear-gradient(90deg, ${colour(curve.colour)} 0 5px, transparent 5px 8px)` : colour(curve.colour);
        item.append(swatch, curve.name);
        legend.append(item);
      }
      parts.push(legend);
    }
    place.replaceChildren(...parts, plot);
  }

  const widths = new WeakMap();
  const watch = new ResizeObserver((entries) => {
    for (const { target, contentRect } of entries) {
      const width = Math.floor(contentRect.width);
      if (width < 50 || widths.get(target) === width) continue;
      widths.set(target, width);
      draw(target, charts[target.dataset.chart], width);
    }
  });
  for (const place of document.querySelectorAll("[data-chart]")) watch.observe(place);
})();
