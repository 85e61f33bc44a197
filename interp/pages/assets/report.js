"use strict";
// The report's one script. It reads the results that are embedded in the page, draws them, and keeps
// one selection (position, head) for all views, also in the address. It fetches nothing.
(() => {
  const doc = JSON.parse(document.getElementById("results").textContent);
  const views = [];                       // functions called whenever the selection changes
  const state = { pos: 0, head: null, by: "head", colour: "attention" };

  // ---- small helpers ------------------------------------------------------------------------
  const $ = (selector, root = document) => root.querySelector(selector);
  const result = (kind, test = () => true) => doc.results.find((r) => r.kind === kind && test(r));
  const table = (name) => doc.tables[name] || null;
  const records = (t) => t ? t.rows.map((row) => Object.fromEntries(t.columns.map((c, i) => [c, row[i]]))) : [];
  const signed = (x, digits = 2) => (x < 0 ? "−" : "+") + Math.abs(x).toFixed(digits);
  const number = (x, digits = 3) => x === null || Number.isNaN(x) ? "–" : (x < 0 ? "−" : "") + Math.abs(x).toFixed(digits);
  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  function el(tag, attributes = {}, ...children) {
    const node = document.createElement(tag);
    for (const [key, value] of Object.entries(attributes)) {
      if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
      else if (key === "text") node.textContent = value;
      else if (key === "style") for (const [k, v] of Object.entries(value)) node.style.setProperty(k, v);
      else if (value !== null && value !== false) node.setAttribute(key, value === true ? "" : value);
    }
    node.append(...children.filter((child) => child !== null));
    return node;
  }

  function svg(tag, attributes = {}, ...children) {
    const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [key, value] of Object.entries(attributes)) {
      if (key === "text") node.textContent = value; else node.setAttribute(key, value);
    }
    node.append(...children);
    return node;
  }

  function glyph(character) {
    if (character === " ") return "␣";
    if (character === "\n") return "⏎";
    if (character === "\t") return "⇥";
    const code = character.codePointAt(0);
    return code < 32 || code === 127 ? String.fromCodePoint(code === 127 ? 0x2421 : 0x2400 + code) : character;
  }

  // ---- arrays as Python wrote them ------------------------------------------------------------
  const KINDS = { "<f4": Float32Array, "<f8": Float64Array, "<i8": BigInt64Array, "<i4": Int32Array, "|b1": Uint8Array };

  async function inflate(text) {
    const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
    return new Uint8Array(await new Response(stream).arrayBuffer());
  }

  async function array(field) {
    if (field.values) return Float64Array.from(field.values, Number);
    const planes = await inflate(field.zlib), size = field.planes, n = planes.length / size;
    const bytes = new Uint8Array(planes.length);              // all first bytes come first, then all second ones …
    for (let k = 0; k < size; k++) for (let i = 0; i < n; i++) bytes[i * size + k] = planes[k * n + i];
    if (field.quantum !== undefined) return Float32Array.from(new Int16Array(bytes.buffer), (steps) => steps * field.quantum);
    const typed = new KINDS[field.dtype](bytes.buffer);
    return field.dtype === "<i8" ? Float64Array.from(typed, Number) : typed;
  }

  // ---- colours: cividis for weights, PuOr for signed numbers; both safe for the colour-blind -----
  const CIVIDIS = [[0, 34, 78], [35, 62, 108], [87, 93, 109], [124, 123, 120], [165, 156, 116], [210, 192, 96], [254, 232, 56]];
  const PUOR = [[84, 39, 136], [178, 171, 210], [247, 247, 247], [253, 184, 99], [179, 88, 6]];
  function ramp(stops, x) {
    const at = Math.min(Math.max(x, 0), 1) * (stops.length - 1), i = Math.min(Math.floor(at), stops.length - 2);
    return stops[i].map((low, k) => Math.round(low + (stops[i + 1][k] - low) * (at - i)));
  }
  const weightColour = (w) => ramp(CIVIDIS, Math.sqrt(w));
  const signedColour = (v, limit) => ramp(PUOR, 0.5 + 0.5 * Math.sign(v) * Math.sqrt(Math.abs(v) / limit));
  const LAYERS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#8a6d00", "#555555"];

  // ---- the selection ---------------------------------------------------------------------------
  function select(change) {
    Object.assign(state, change);
    const parts = [`pos=${state.pos}`];
    if (state.head) parts.push(`head=${state.head}`);
    history.replaceState(null, "", `#${parts.join("&")}`);
    for (const view of views) view();
  }

  function restore() {
    const given = new URLSearchParams(location.hash.slice(1));
    const pos = Number(given.get("pos"));
    if (given.has("pos") && Number.isInteger(pos)) state.pos = Math.min(Math.max(pos, 0), nPos - 1);
    if (heads.includes(given.get("head"))) state.head = given.get("head");
  }

  // ---- data as CSV -----------------------------------------------------------------------------
  function csvOf(t) {
    const cell = (x) => {
      const s = x === null ? "" : String(x);
      return /[",\r\n]/.test(s) ? `"${s.replaceAll('"', '""')}"` : s;
    };
    return [t.columns, ...t.rows].map((row) => row.map(cell).join(",")).join("\n") + "\n";
  }

  function dataButton(name, make) {
    return el("button", {
      class: "data", text: "data", title: `the numbers of this figure, as ${name}.csv`,
      onclick: () => {
        const url = URL.createObjectURL(new Blob([csvOf(make())], { type: "text/csv" }));
        el("a", { href: url, download: `${name}.csv` }).click();
        setTimeout(() => URL.revokeObjectURL(url), 1000);
      },
    });
  }

  function addDataButtons() {
    const shape = (part) => part.values.shape;
    const contributions = () => {
      const part = parts.head || parts.block, values = parts.head ? data.head : data.block, n = shape(part)[2];
      return { columns: ["component", "pos", "target", "contribution_logits"], rows: part.components.flatMap((c, i) =>
        Array.from({ length: n }, (_, t) => [c, t, characters ? characters[tokens[t + 1]] : tokens[t + 1], values[i * n + t]])) };
    };
    const attention = () => {
      const h = heads.indexOf(state.head), n = tokens.length, rows = [];
      for (let t = 0; t < n; t++) for (let s = 0; s <= t; s++) rows.push([state.head, t, s, data.patterns[(h * n + t) * n + s]]);
      return { columns: ["head", "query", "key", "weight"], rows };
    };
    const throughDepths = () => {
      const n = lens.log_prob.shape[2], glyphs = (t) => characters ? characters[t] : t;
      return { columns: ["depth", "pos", "log_prob_nats", "rank", "top", "top_prob"], rows: lens.depths.flatMap((depth, d) =>
        Array.from({ length: n }, (_, t) => [depth, t, data.logProb[d * n + t], data.lensRank[d * n + t], glyphs(data.lensTop[d * n + t]), data.lensTopProb[d * n + t]])) };
    };
    const losses = () => ({ columns: Object.keys(doc.history[0]), rows: doc.history.map((row) => Object.values(row)) });
    const made = { contributions: (parts.head || parts.block) && contributions, attention: patterns && attention, lens: lens && throughDepths,
      training: doc.history.length && losses };
    for (const place of document.querySelectorAll("[data-table]")) {
      const name = place.dataset.table, make = table(name) ? () => table(name) : made[name];
      if (make) place.append(dataButton(name, make));
    }
  }

  // ---- a map of cells with a crosshair ----------------------------------------------------------
  // value(row, column): number or null; colour(value): [r, g, b]; say(row, column): what the line
  // below reads; keys move the crosshair, Enter and a click choose.
  function heatMap(place, { rows, columns, cell, rowNames, value, colour, say, choose, marked, letters, label, gutter = 64 }) {
    const ratio = window.devicePixelRatio || 1;
    const left = rowNames ? gutter : 0, width = left + columns * cell[0], height = rows * cell[1];
    const canvas = el("canvas", { width: width * ratio, height: height * ratio, tabindex: "0", role: "img", "aria-label": label,
      style: { width: `${width}px`, height: `${height}px` } });
    const line = el("output", { class: "readout" });
    place.replaceChildren(el("div", { class: "scroll" }, canvas), line);
    let at = null;
    const base = document.createElement("canvas");       // drawn once a set of values
    function paint() {
      base.width = columns; base.height = rows;
      const image = new ImageData(columns, rows);
      for (let r = 0; r < rows; r++) for (let c = 0; c < columns; c++) {
        const v = value(r, c), i = 4 * (r * columns + c);
        if (v === null) continue;
        const [red, green, blue] = colour(v);
        image.data.set([red, green, blue, 255], i);
      }
      base.getContext("2d").putImageData(image, 0, 0);
      draw();
    }
    function draw() {
      const ctx = canvas.getContext("2d");
      ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
      ctx.clearRect(0, 0, width, height);
      ctx.imageSmoothingEnabled = false;
      ctx.drawImage(base, left, 0, columns * cell[0], height);
      ctx.fillStyle = css("--ink");
      ctx.textBaseline = "middle";
      if (rowNames) {
        ctx.font = `${Math.min(12, cell[1] - 1)}px ui-monospace, monospace`;
        rowNames.forEach((name, r) => ctx.fillText(name, 0, (r + 0.5) * cell[1], left - 4));
      }
      if (letters) {
        ctx.font = `${Math.min(12, cell[0])}px ui-monospace, monospace`;
        ctx.textAlign = "center";
        for (let r = 0; r < rows; r++) for (let c = 0; c < columns; c++) {
          const v = value(r, c), [red, green, blue] = colour(v);
          ctx.fillStyle = red * 0.3 + green * 0.6 + blue * 0.1 > 128 ? "#000" : "#fff";
          ctx.fillText(letters(r, c), left + (c + 0.5) * cell[0], (r + 0.5) * cell[1]);
        }
        ctx.textAlign = "start";
      }
      const cross = (r, c, style) => {
        ctx.strokeStyle = style;
        ctx.lineWidth = 1;
        if (c !== null) ctx.strokeRect(left + c * cell[0] - 0.5, 0.5, cell[0] + 1, height - 1);
        if (r !== null) ctx.strokeRect(left + 0.5, r * cell[1] - 0.5, width - left - 1, cell[1] + 1);
      };
      const mark = marked ? marked() : null;
      if (mark) cross(mark[0], mark[1], css("--mark"));
      if (at) cross(at[0], at[1], css("--ink"));
      line.textContent = at ? say(at[0], at[1]) : mark && mark[0] !== null && mark[1] !== null ? say(mark[0], mark[1]) : "";
    }
    function cellOf(event) {
      const box = canvas.getBoundingClientRect();
      const c = Math.floor((event.clientX - box.left - left) / cell[0]), r = Math.floor((event.clientY - box.top) / cell[1]);
      return r >= 0 && r < rows && c >= 0 && c < columns ? [r, c] : null;
    }
    canvas.addEventListener("pointermove", (event) => { at = cellOf(event); draw(); });
    canvas.addEventListener("pointerleave", () => { at = null; draw(); });
    canvas.addEventListener("click", (event) => { const hit = cellOf(event); if (hit && choose) choose(...hit); });
    canvas.addEventListener("keydown", (event) => {
      const move = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
      if (move) {
        const from = at || (marked && marked()) || [0, 0];
        at = [Math.min(Math.max((from[0] ?? 0) + move[0], 0), rows - 1), Math.min(Math.max((from[1] ?? 0) + move[1], 0), columns - 1)];
        draw(); event.preventDefault();
      } else if ((event.key === "Enter" || event.key === " ") && at && choose) { choose(...at); event.preventDefault(); }
    });
    canvas.addEventListener("blur", () => { at = null; draw(); });
    return { paint, draw };
  }

  // ---- lines and points --------------------------------------------------------------------------
  // series: {name, tag (at its end), colour, points: [[x, y]], low, high (bands)}; points: single ones. Axes are linear, or,
  // with `root`, square roots on either side of zero.
  function plot(place, { width = 460, height = 260, series, xLabel, yLabel, xTicks, yZero, label, points = [], diagonal, root: rooted }) {
    const f = rooted ? (x) => Math.sign(x) * Math.sqrt(Math.abs(x)) : (x) => x, back = rooted ? (x) => Math.sign(x) * x * x : (x) => x;
    series = series.map((s) => ({ ...s, points: s.points.map(([x, y]) => [f(x), f(y)]) }));
    points = points.map((p) => ({ ...p, x: f(p.x), y: f(p.y), low: p.low === undefined ? p.low : f(p.low), high: p.high === undefined ? p.high : f(p.high) }));
    const margin = { left: 58, right: 12, top: 10, bottom: 42 };
    const xs = series.flatMap((s) => s.points.map((p) => p[0])).concat(points.map((p) => p.x));
    const ys = series.flatMap((s) => s.points.map((p) => p[1]).concat(s.low || [], s.high || []))
      .concat(points.flatMap((p) => [p.y, p.low ?? p.y, p.high ?? p.y])).filter(Number.isFinite);
    let [x0, x1] = [Math.min(...xs), Math.max(...xs)], [y0, y1] = [Math.min(...ys, yZero ? 0 : Infinity), Math.max(...ys)];
    if (diagonal) { x0 = Math.min(x0, 0); y0 = Math.min(y0, 0); }
    const pad = (a, b) => [a - 0.03 * (b - a || 1), b + 0.06 * (b - a || 1)];
    [x0, x1] = pad(x0, x1); [y0, y1] = yZero ? [y0, pad(y0, y1)[1]] : pad(y0, y1);
    const X = (x) => margin.left + (x - x0) / (x1 - x0) * (width - margin.left - margin.right);
    const Y = (y) => height - margin.bottom - (y - y0) / (y1 - y0) * (height - margin.top - margin.bottom);
    const root = svg("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": label });
    const ticks = (a, b) => {
      const raw = (b - a) / 5, unit = 10 ** Math.floor(Math.log10(raw)), step = [1, 2, 5, 10].find((m) => m * unit >= raw) * unit;
      const out = [];
      for (let t = Math.ceil(a / step) * step; t <= b + 1e-9; t += step) out.push([t, String(Number(t.toPrecision(6)))]);
      if (!rooted) return out;
      const nice = [0, 0.001, 0.01, 0.05, 0.1, 0.25, 0.5, 1, 2, 4, 8, 16], all = [...nice.slice(1).map((v) => -v), ...nice].filter((v) => f(v) >= a && f(v) <= b);
      return all.filter((v) => v === 0 || Math.abs(f(v)) > (b - a) / 16).map((v) => [f(v), String(v)]);
    };
    for (const [t, name] of ticks(y0, y1)) {
      root.append(svg("line", { x1: margin.left, x2: width - margin.right, y1: Y(t), y2: Y(t), class: "grid" }),
        svg("text", { x: margin.left - 6, y: Y(t) + 4, "text-anchor": "end", text: name }));
    }
    for (const [t, name] of xTicks || ticks(x0, x1)) root.append(svg("text", { x: X(t), y: height - margin.bottom + 16, "text-anchor": "middle", text: name }));
    root.append(svg("line", { x1: margin.left, x2: width - margin.right, y1: height - margin.bottom, y2: height - margin.bottom, class: "axis" }),
      svg("line", { x1: margin.left, x2: margin.left, y1: margin.top, y2: height - margin.bottom, class: "axis" }),
      svg("text", { x: (margin.left + width) / 2, y: height - 8, "text-anchor": "middle", text: xLabel }),
      svg("text", { x: 14, y: height / 2 - 15, "text-anchor": "middle", transform: `rotate(-90 14 ${height / 2 - 15})`, text: yLabel }));
    if (diagonal) {
      const low = Math.max(x0, y0), high = Math.min(x1, y1);
      root.append(svg("line", { x1: X(low), y1: Y(low), x2: X(high), y2: Y(high), class: "diagonal" }));
    }
    for (const s of series) {
      const path = (points) => points.map((p, i) => `${i ? "L" : "M"}${X(p[0]).toFixed(1)},${Y(p[1]).toFixed(1)}`).join("");
      if (s.low) {
        const up = s.points.map((p, i) => [p[0], s.high[i]]), down = s.points.map((p, i) => [p[0], s.low[i]]).reverse();
        root.append(svg("path", { d: `${path([...up, ...down])}Z`, fill: s.colour, "fill-opacity": 0.18 }));
      }
      root.append(svg("path", { d: path(s.points), fill: "none", stroke: s.colour, "stroke-width": 1.6, "stroke-dasharray": s.dash || "none" }));
    }
    const taken = points.map((p) => ({ left: X(p.x) - 4, right: X(p.x) + 4, top: Y(p.y) - 4, bottom: Y(p.y) + 4 }));
    for (const p of points) {
      const mark = svg("g", {}, svg("title", { text: p.title }));
      if (p.low !== undefined) mark.append(svg("line", { x1: X(p.x), x2: X(p.x), y1: Y(p.low), y2: Y(p.high), stroke: p.colour, "stroke-opacity": 0.6 }));
      mark.append(svg("circle", { cx: X(p.x), cy: Y(p.y), r: 4, fill: p.ring ? "none" : p.colour, stroke: p.colour, "stroke-width": 2 }));
      if (p.name) {                            // on the side where there is room, or not at all
        const length = 7 * p.name.length, right = X(p.x) + 7 + length < width, x = right ? X(p.x) + 7 : X(p.x) - 7, y = Y(p.y) + 4;
        const box = { left: right ? x : x - length, right: right ? x + length : x, top: y - 10, bottom: y + 2 };
        const free = taken.every((other) => box.left > other.right || box.right < other.left || box.top > other.bottom || box.bottom < other.top);
        if (free) { taken.push(box); mark.append(svg("text", { x, y, "text-anchor": right ? "start" : "end", text: p.name })); }
      }
      root.append(mark);
    }
    for (const s of series) if (s.tag) {
      const [x, y] = s.points[s.points.length - 1];
      root.append(svg("text", { x: X(x), y: Y(y) - 4, "text-anchor": "end", text: s.tag }));
    }
    const named = series.filter((s) => s.name);
    const legend = el("p", { class: "legend" }, ...named.map((s) => el("span", {}, el("i", { style: { background: s.colour } }), s.name)));
    place.replaceChildren(el("div", { class: "scroll" }, root), named.length > 1 ? legend : "");
  }

  // ---- what there is ------------------------------------------------------------------------------
  const lens = result("LogitLens"), patterns = result("AttentionPatterns"), predictions = result("Predictions");
  const parts = { block: result("LogitAttribution", (r) => r.by === "block"), head: result("LogitAttribution", (r) => r.by === "head"),
    source: result("LogitAttribution", (r) => r.by === "source") };
  const any = lens || parts.block || patterns;
  const characters = any ? any.characters : null;
  const glyphOf = (token) => characters ? glyph(characters[token]) : String(token);
  const heads = [];
  for (let l = 0; l < doc.config.n_layers; l++) for (let h = 0; h < doc.config.n_heads; h++) heads.push(`L${l}.H${h}`);
  const labels = records(table("head-labels")), scores = records(table("head-scores"));
  const labelsOf = (head) => labels.filter((r) => r.confirmed && `L${r.layer}.H${r.head}` === head).map((r) => r.label);
  const effectUnit = ["log_prob", "loss", "kl"].includes(result("ComponentEffects")?.metric) ? "nats" : "logits";
  const effectOf = (head) => { const row = records(table("effects")).find((r) => r.component === head); return row ? row.total : null; };
  const entropyOf = (head) => { const row = scores.find((r) => r.score === "entropy" && `L${r.layer}.H${r.head}` === head); return row ? row.value : null; };
  let nPos = 1, tokens = [], data = {};

  // ---- text explorer --------------------------------------------------------------------------------
  function explorer() {
    const place = $("#view-explorer");
    if (!place) return;
    const passage = el("div", { class: "passage", role: "group", "aria-label": "the passage; arrow keys move the position" });
    const buttons = tokens.map((token, i) => el("button", { type: "button", class: "ch", text: glyphOf(token), tabindex: "-1",
      "aria-label": `position ${i}: ${characters && characters[token] === " " ? "space" : characters && characters[token] === "\n" ? "newline" : glyphOf(token)}`,
      onclick: () => select({ pos: Math.min(i, nPos - 1) }) }));
    buttons.forEach((button, i) => { passage.append(button); if (characters && characters[tokens[i]] === "\n") passage.append(el("br")); });
    passage.addEventListener("keydown", (event) => {
      const lines = { ArrowLeft: -1, ArrowRight: 1 };
      let to = null;
      if (event.key in lines) to = state.pos + lines[event.key];
      if (event.key === "Home") to = 0;
      if (event.key === "End") to = nPos - 1;
      if (event.key === "ArrowUp" || event.key === "ArrowDown") {
        const here = buttons[state.pos].getBoundingClientRect(), down = event.key === "ArrowDown" ? 1 : -1;
        let best = Infinity;
        buttons.slice(0, nPos).forEach((button, i) => {
          const box = button.getBoundingClientRect(), dy = (box.top - here.top) * down;
          if (dy > 4 && dy * 100 + Math.abs(box.left - here.left) < best) { best = dy * 100 + Math.abs(box.left - here.left); to = i; }
        });
      }
      if (to === null) return;
      event.preventDefault();
      select({ pos: Math.min(Math.max(to, 0), nPos - 1) });
      buttons[state.pos].focus();
    });
    const colouring = choice("colour", "the text is coloured by", [["attention", "attention of the selected head"], ["foreseen", "how well each character was foreseen"]]);
    const which = el("select", { "aria-label": "head", onchange: () => select({ head: which.value }) }, ...heads.map((h) => el("option", { value: h, text: h })));
    const detail = choice("by", "contributions by", [["block", "block"], ["head", "head"], ["source", "source character of the head"]]
      .filter(([by]) => parts[by]));
    const told = el("p", { class: "told", "aria-live": "polite" }), top = el("div", { class: "bars" }), bars = el("div", { class: "bars" }), sum = el("p", { class: "sum" });
    place.replaceChildren(el("div", { class: "controls" }, colouring, heads.length ? el("label", {}, "head ", which) : null), passage,
      el("div", { class: "columns" }, el("div", {}, el("h3", { text: "What it predicts next" }), told, top),
        el("div", {}, el("h3", { text: "What made the prediction" }), detail, bars, sum)));

    views.push(() => {
      const t = state.pos;
      if (state.head) which.value = state.head;
      const h = heads.indexOf(state.head), n = tokens.length;
      buttons.forEach((button, i) => {
        let colour = null, tip = `position ${i}`;
        if (state.colour === "attention" && data.patterns && h >= 0 && i <= t) {
          const w = data.patterns[(h * n + t) * n + i];
          colour = weightColour(w); tip = `${state.head} gives position ${i} a weight of ${w.toFixed(4)} from position ${t}`;
        } else if (state.colour === "foreseen" && data.prob && i > 0) {
          colour = weightColour(data.prob[i - 1]); tip = `position ${i} was given a probability of ${data.prob[i - 1].toFixed(4)}`;
        }
        button.style.background = colour ? `rgb(${colour})` : "";
        button.style.color = colour ? colour[0] * 0.3 + colour[1] * 0.6 + colour[2] * 0.1 > 128 ? "#000" : "#fff" : "";
        button.title = tip;
        button.setAttribute("aria-pressed", String(i === t));
        button.tabIndex = i === t ? 0 : -1;
        button.classList.toggle("next", i === t + 1);
      });
      const next = tokens[t + 1];
      told.textContent = `The query at position ${t} (${glyphOf(tokens[t])}) predicts position ${t + 1}, which is ${glyphOf(next)}.`;
      if (data.top) {
        const k = predictions.top.shape[2];
        top.replaceChildren(...Array.from({ length: k }, (_, j) => {
          const token = data.top[t * k + j], p = data.topProb[t * k + j];
          return bar(glyphOf(token), p, 1, p.toFixed(4), token === next ? "true" : "", "the true next character");
        }), data.trueRank[t] >= k ? bar(glyphOf(next), data.prob[t], 1, data.prob[t].toFixed(4), "true", "the true next character") : "");
      }
      contributions(t);
    });

    function contributions(t) {
      const by = parts[state.by] ? state.by : "block", part = parts[by];
      if (!part) return;
      const values = data[by], n = part.values.shape[2];
      let rows = part.components.map((name, i) => ({ name, value: values[i * n + t] }));
      let total = data.total[t], what = "the model's own logit, less the mean over all characters";
      if (by === "source") {
        rows = rows.filter((r) => r.name.startsWith(`${state.head}.S`)).slice(0, t + 1)
          .map((r, s) => ({ name: `${glyphOf(tokens[s])} at ${s}`, value: r.value, pos: s }));
        const own = parts.head.components.indexOf(state.head);
        total = data.head[own * n + t];
        what = `all of ${state.head}`;
        if (rows.length > 14) {
          const kept = [...rows].sort((a, b) => Math.abs(b.value) - Math.abs(a.value)).slice(0, 13);
          const others = rows.filter((r) => !kept.includes(r));
          rows = [...kept.sort((a, b) => a.pos - b.pos), { name: `${others.length} others`, value: others.reduce((s, r) => s + r.value, 0) }];
        }
      }
      const limit = Math.max(...rows.map((r) => Math.abs(r.value)), 1e-9);
      bars.replaceChildren(...rows.map((r) => {
        const isHead = heads.includes(r.name);
        return signedBar(r.name, r.value, limit, isHead && r.name === state.head, isHead ? () => select({ head: r.name }) : null);
      }));
      const added = rows.reduce((s, r) => s + r.value, 0);
      sum.textContent = `They sum to ${signed(added, 3)} logits; ${what}: ${signed(total, 3)}.`;
    }
  }

  function choice(key, legend, options) {
    return el("fieldset", { class: "choice" }, el("legend", { text: legend }), ...options.map(([value, name]) =>
      el("label", {}, el("input", { type: "radio", name: key, value, checked: state[key] === value, onchange: () => select({ [key]: value }) }), ` ${name} `)));
  }

  function bar(name, value, limit, text, kind, note) {
    return el("div", { class: `bar ${kind}`, title: kind ? note : null }, el("span", { class: "name", text: name }),
      el("span", { class: "track" }, el("i", { style: { width: `${100 * value / limit}%` } })), el("span", { class: "value", text }));
  }

  function signedBar(name, value, limit, marked, choose) {
    const half = 50 * Math.abs(value) / limit, side = value >= 0 ? { left: "50%", width: `${half}%` } : { right: "50%", width: `${half}%` };
    const label = choose ? el("button", { type: "button", class: "name", text: name, onclick: choose, "aria-pressed": String(marked) }) : el("span", { class: "name", text: name });
    return el("div", { class: marked ? "bar marked" : "bar" }, label,
      el("span", { class: "track signed" }, el("i", { class: value >= 0 ? "for" : "against", style: side })), el("span", { class: "value", text: signed(value, 3) }));
  }

  // ---- heads atlas ----------------------------------------------------------------------------------
  function atlas() {
    const place = $("#view-atlas");
    if (!place) return;
    const kinds = [...new Set(labels.filter((r) => r.confirmed).map((r) => r.label))].sort();
    const order = el("select", { onchange: fill }, el("option", { value: "place", text: "place in the model" }),
      el("option", { value: "effect", text: "effect when removed" }), el("option", { value: "entropy", text: "entropy, sharpest first" }));
    const filter = el("select", { onchange: fill }, el("option", { value: "", text: "all heads" }), el("option", { value: "*", text: "with a confirmed label" }),
      ...kinds.map((kind) => el("option", { value: kind, text: kind })));
    const grid = el("div", { class: "atlas" }), shown = el("p", { class: "sum", "aria-live": "polite" });
    place.replaceChildren(el("div", { class: "controls" }, el("label", {}, "sort by ", order), el("label", {}, "show ", filter), shown), grid);
    const n = tokens.length, cards = new Map();
    heads.forEach((head, h) => {
      const canvas = el("canvas", { width: n, height: n, "aria-hidden": "true" });
      if (data.patterns) {
        const image = new ImageData(n, n);
        for (let t = 0; t < n; t++) for (let s = 0; s <= t; s++) image.data.set([...weightColour(data.patterns[(h * n + t) * n + s]), 255], 4 * (t * n + s));
        canvas.getContext("2d").putImageData(image, 0, 0);
      }
      const named = labelsOf(head), effect = effectOf(head);
      cards.set(head, el("button", { type: "button", class: "card", "data-head": head, onclick: () => select({ head }) }, canvas, el("strong", { text: head }),
        el("span", { class: "chips" }, ...named.map((label) => el("span", { class: "chip", text: label }))),
        el("small", { text: effect === null ? "" : `effect ${signed(effect, 3)} ${effectUnit}` })));
    });
    function fill() {
      const by = { place: () => 0, effect: (h) => -(effectOf(h) ?? -Infinity), entropy: (h) => entropyOf(h) ?? Infinity }[order.value];
      const chosen = heads.filter((h) => !filter.value || (filter.value === "*" ? labelsOf(h).length : labelsOf(h).includes(filter.value)));
      chosen.sort((a, b) => by(a) - by(b) || heads.indexOf(a) - heads.indexOf(b));
      grid.replaceChildren(...chosen.map((h) => cards.get(h)));
      grid.style.setProperty("--columns", order.value === "place" && !filter.value ? doc.config.n_heads : 4);
      shown.textContent = `${chosen.length} of ${heads.length} heads`;
    }
    fill();
    views.push(() => cards.forEach((card, head) => card.setAttribute("aria-pressed", String(head === state.head))));
  }

  function headPage() {
    const place = $("#view-head");
    if (!place || !heads.length) return;
    const title = el("h3"), map = el("div"), words = el("div", { class: "words" }), n = tokens.length;
    place.replaceChildren(title, el("div", { class: "columns" }, map, words));
    const cell = Math.max(2, Math.min(6, Math.floor(560 / n)));
    const weight = (t, s) => s > t || !data.patterns ? null : data.patterns[(heads.indexOf(state.head) * n + t) * n + s];
    const drawn = heatMap(map, { rows: n, columns: n, cell: [cell, cell], value: weight, colour: weightColour, label: "attention of the selected head, query by key",
      say: (t, s) => s > t ? `query ${t}: key ${s} is later, so masked` : `query ${t} (${glyphOf(tokens[t])}) gives key ${s} (${glyphOf(tokens[s])}) a weight of ${weight(t, s).toFixed(4)}`,
      choose: (t) => select({ pos: Math.min(t, nPos - 1) }), marked: () => [state.pos, null] });
    let last = null;
    views.push(() => {
      if (state.head !== last) { last = state.head; drawn.paint(); describe(); } else drawn.draw();
    });
    function describe() {
      const head = state.head, card = doc.cards[head], named = labelsOf(head);
      title.textContent = `${head}: ${named.length ? named.join(", ") : "no confirmed label"}`;
      const own = (r) => `L${r.layer}.H${r.head}` === head;
      const rows = scores.filter(own).filter((r) => r.null !== null).sort((a, b) => Math.abs(b.value - b.null) / Math.max(Math.abs(b.null), 0.02) - Math.abs(a.value - a.null) / Math.max(Math.abs(a.null), 0.02)).slice(0, 10);
      words.replaceChildren(
        grid("Labels tried", ["label", "score", "null", "effect (nats)", "control", ""], labels.filter(own).map((r) => [r.label, number(r.score, 2), number(r.null, 2),
          `${signed(r.effect, 3)} [${signed(r.effect_low, 3)}, ${signed(r.effect_high, 3)}]`, `${signed(r.control, 3)}`, r.confirmed ? "confirmed" : "not confirmed"]), "no score stands above its nulls"),
        grid("Scores furthest from uniform attention", ["score", "value", "95 %", "uniform", "permuted", "untrained", "q"], rows.map((r) => [r.score + ({ span: " (keys)", distance: " (positions)" }[r.score] || ""), number(r.value), `[${number(r.low)}, ${number(r.high)}]`, number(r.null), number(r.null_permuted), number(r.null_untrained), r.q_value === null ? "–" : r.q_value < 0.001 ? "<0.001" : number(r.q_value)]), "not measured"),
        card ? grid("Attends most, in context", ["weight", "key", "text up to the query"], card.examples.map((e) => [e.weight.toFixed(2), `${e.key} at −${e.back}`, e.text]), "") : "",
        card ? grid(`Writes, on attending to a token (copying ${signed(card.copying)})`, ["token", "raises (logits, before LayerNorm's scales)"], card.writes.map((w) => [w.token, w.raises]), "") : "");
    }
  }

  function grid(title, columns, rows, none) {
    if (!rows.length) return el("div", {}, el("h4", { text: title }), el("p", { text: none }));
    return el("div", { class: "scroll" }, el("h4", { text: title }), el("table", { class: "data" }, el("thead", {}, el("tr", {}, ...columns.map((c) => el("th", { text: c })))),
      el("tbody", {}, ...rows.map((row) => el("tr", {}, ...row.map((x) => el("td", { text: x })))))));
  }

  // ---- residual map, lens ------------------------------------------------------------------------------
  function residualMap() {
    const place = $("#view-residual"), part = parts.head || parts.block;
    if (!place || !part) return;
    const values = parts.head ? data.head : data.block, [rows, , columns] = part.values.shape;
    let limit = 1e-9;
    for (const v of values) limit = Math.max(limit, Math.abs(v));
    const drawn = heatMap(place, { rows, columns, cell: [Math.max(4, Math.min(9, Math.floor(1060 / columns))), 14], rowNames: part.components, value: (r, c) => values[r * columns + c],
      colour: (v) => signedColour(v, limit), label: "contribution of each component at each position",
      say: (r, c) => `${part.components[r]} at position ${c}: ${signed(values[r * columns + c], 4)} logits towards ${glyphOf(tokens[c + 1])}`,
      choose: (r, c) => select(heads.includes(part.components[r]) ? { pos: c, head: part.components[r] } : { pos: c }),
      marked: () => [part.components.indexOf(state.head) >= 0 ? part.components.indexOf(state.head) : null, state.pos] });
    drawn.paint();
    views.push(drawn.draw);
    $("#residual-scale").textContent = `Colours run from −${limit.toFixed(2)} (purple) to +${limit.toFixed(2)} logits (orange), on a square-root scale on either side of zero.`;
  }

  function lensMap() {
    const place = $("#view-lens");
    if (!place || !lens) return;
    const [rows, , columns] = lens.log_prob.shape, at = (r, c) => (rows - 1 - r) * columns + c;
    const drawn = heatMap(place, { rows, columns, cell: [Math.max(8, Math.min(12, Math.floor(1060 / columns))), 20], rowNames: [...lens.depths].reverse(), gutter: 84,
      value: (r, c) => Math.exp(data.logProb[at(r, c)]), colour: weightColour, letters: (r, c) => glyphOf(data.lensTop[at(r, c)]), label: "what the stream predicts at each depth",
      say: (r, c) => `${[...lens.depths].reverse()[r]}, position ${c}: likeliest ${glyphOf(data.lensTop[at(r, c)])} (${data.lensTopProb[at(r, c)].toFixed(4)}); the true ${glyphOf(tokens[c + 1])} ${Math.exp(data.logProb[at(r, c)]).toFixed(4)}, rank ${data.lensRank[at(r, c)]}`,
      choose: (r, c) => select({ pos: c }), marked: () => [null, state.pos] });
    drawn.paint();
    views.push(drawn.draw);
  }

  // ---- effects, scaling, training -------------------------------------------------------------------
  function effects() {
    const place = $("#view-effects"), rows = records(table("effects"));
    if (!place || !rows.length) return;
    const found = result("ComponentEffects"), unit = effectUnit;
    const colour = (layer) => layer < 0 ? css("--ink") : LAYERS[layer % LAYERS.length];
    const largest = [...rows].sort((a, b) => Math.max(Math.abs(b.total), Math.abs(b.direct)) - Math.max(Math.abs(a.total), Math.abs(a.direct))).slice(0, 14).map((r) => r.component);
    const layers = [...new Set(rows.map((r) => r.layer))].sort((a, b) => a - b);
    plot(place, { width: 700, height: 460, diagonal: true, root: true, xLabel: `direct effect (${unit}, square-root scale)`, yLabel: `total effect (${unit}, square-root scale)`, label: "total effect against direct effect of each component",
      series: layers.map((layer) => ({ name: layer < 0 ? "embeddings" : `layer ${layer}`, colour: colour(layer), points: [] })),
      points: rows.map((r) => ({ x: r.direct, y: r.total, low: r.total_low, high: r.total_high, colour: colour(r.layer), ring: r.signs_disagree, name: largest.includes(r.component) ? r.component : "",
        title: `${r.component}: direct ${signed(r.direct, 4)}, total ${signed(r.total, 4)} [${signed(r.total_low, 4)}, ${signed(r.total_high, 4)}] ${unit}${r.signs_disagree ? "; signs disagree" : ""}` })) });
    place.append(el("details", {}, el("summary", { text: "all components" }), grid("", ["component", "direct", "total", "95 %", "hidden by the LayerNorm", "downstream"],
      [...rows].sort((a, b) => Math.abs(b.total) - Math.abs(a.total)).map((r) => [r.component, signed(r.direct, 4), signed(r.total, 4), `[${signed(r.total_low, 4)}, ${signed(r.total_high, 4)}]`, signed(r.layer_norm_part, 4), signed(r.downstream_part, 4)]), "")));
  }

  function scaling() {
    const place = $("#view-scaling"), rows = records(table("scaling"));
    if (!place || !rows.length) return;
    const multipliers = [...new Set(rows.map((r) => r.multiplier))], positive = multipliers.filter((m) => m > 0);
    const at = (m) => m > 0 ? Math.log2(m) : Math.log2(Math.min(...positive)) - 1;
    const ticks = multipliers.map((m) => [at(m), String(Number(m.toPrecision(2)))]), first = rows.filter((r) => r.layer === 0 && r.head === 0);
    const left = el("div"), right = el("div");
    place.replaceChildren(el("div", { class: "columns" }, left, right));
    plot(left, { xTicks: ticks, xLabel: "scores multiplied by (1: as it is)", yLabel: "loss (nats per token)", label: "loss against the multiplier of the scores",
      series: [{ name: "loss", colour: LAYERS[0], points: first.map((r) => [at(r.multiplier), r.loss]), low: first.map((r) => r.low), high: first.map((r) => r.high) }] });
    plot(right, { xTicks: ticks, xLabel: "scores multiplied by (1: as it is)", yLabel: "entropy / ln(visible keys)", yZero: true, label: "entropy of each head against the multiplier",
      series: heads.map((head) => ({ name: head.endsWith("H0") ? `layer ${head.split(".")[0].slice(1)}` : "", colour: LAYERS[Number(head.split(".")[0].slice(1)) % LAYERS.length],
        points: rows.filter((r) => `L${r.layer}.H${r.head}` === head).map((r) => [at(r.multiplier), r.entropy_normalised]) })) });
  }

  function training() {
    const place = $("#view-training");
    if (!place || !doc.history.length) return;
    const yard = doc.baselines, x = doc.history.map((r) => r.step), last = x[x.length - 1];
    const counted = yard ? yard.orders.map((order, i) => ({ name: "", tag: yard.orders.some((o, j) => j < i && Math.abs(yard.losses[j] - yard.losses[i]) < 0.06) ? "" : `counts of order ${order}`, colour: css("--soft"), dash: "4 3", points: [[x[0], yard.losses[i]], [last, yard.losses[i]]] })) : [];
    plot(place, { width: 620, xLabel: "step", yLabel: "loss (nats per character)", label: "loss while training, beside count models",
      series: [{ name: "validation", colour: LAYERS[0], points: doc.history.map((r) => [r.step, r.validation_loss]) },
        { name: "training", colour: LAYERS[1], points: doc.history.map((r) => [r.step, r.train_loss]) }, ...counted] });
  }

  // ---- start ------------------------------------------------------------------------------------------
  async function start() {
    const wanted = {
      patterns: patterns && patterns.patterns, block: parts.block && parts.block.values, head: parts.head && parts.head.values, source: parts.source && parts.source.values,
      total: parts.block && parts.block.total, top: predictions && predictions.top, topProb: predictions && predictions.top_prob, prob: predictions && predictions.prob,
      trueRank: predictions && predictions.rank, logProb: lens && lens.log_prob, lensTop: lens && lens.top, lensTopProb: lens && lens.top_prob, lensRank: lens && lens.rank,
    };
    const names = Object.keys(wanted).filter((name) => wanted[name]);
    const arrays = await Promise.all(names.map((name) => array(wanted[name])));
    data = Object.fromEntries(names.map((name, i) => [name, arrays[i]]));
    const passage = result("Predictions") || patterns;
    if (passage) tokens = Array.from(await array(passage.tokens));
    nPos = Math.max(1, tokens.length - 1);
    state.pos = Math.floor(nPos / 2);
    state.head = heads.length ? best() : null;
    restore();
    addDataButtons();
    for (const view of [explorer, atlas, headPage, residualMap, lensMap, effects, scaling, training]) view();
    for (const view of views) view();
    for (const link of document.querySelectorAll("a[data-select]")) link.addEventListener("click", () => select(Object.fromEntries(new URLSearchParams(link.dataset.select))));
    window.addEventListener("hashchange", () => { restore(); for (const view of views) view(); });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { for (const view of views) view(); effects(); training(); });
    document.documentElement.dataset.ready = "yes";
  }

  function best() {
    const sorted = [...heads].sort((a, b) => labelsOf(b).length - labelsOf(a).length || (effectOf(b) ?? 0) - (effectOf(a) ?? 0));
    return sorted[0];
  }

  start();
})();
