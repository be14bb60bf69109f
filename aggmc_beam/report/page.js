"use strict";
// Shows values under the pointer, and redraws matplotlib's figures for the estimate that is chosen.
// Text from the data only ever goes through textContent.
(function () {
  const data = JSON.parse(document.getElementById("data").textContent);
  if (!data) return;
  const S = data.states.length, NS = "http://www.w3.org/2000/svg", STEPS = 4;
  const el = (id) => document.getElementById(id);
  const all = (root, role) => [...root.querySelectorAll(`[data-role="${role}"]`)];
  const tip = el("tip"), maps = [...document.querySelectorAll("svg[data-map]")];
  const panels = [...document.querySelectorAll("svg[data-series]")];
  const bars = document.querySelector("svg[data-bars]");
  let item = data.items[Number(document.body.dataset.first)];
  let along = el("along") ? el("along").value : null;

  const num = (v) => (v === null || v === undefined ? null : v / data.unit);
  const fixed = (v, digits) => (v === null ? "?" : v.toFixed(digits));
  const depth = (v) => (S <= data.many ? v : Math.sqrt(v));
  const percent = (v) => (v === null ? "unknown" : (100 * v).toFixed(2) + "%");
  const box = (svg) => {
    const [x, y, width, height] = svg.dataset.box.split(" ").map(Number);
    return { x, y, width, height };
  };
  const entry = (name, i, j) => {
    if (name === "P") return num(item.P[i * S + j]);
    const rows = item.base[name];
    if (rows === undefined) return null;
    if (rows === null) return i === j ? 1 : 0;
    return num(rows[rows.length === S && S > 1 ? j : i * S + j]);
  };
  function add(parent, name, text, kind) {
    const node = document.createElement(name);
    node.textContent = text;
    if (kind) node.className = kind;
    parent.append(node);
    return node;
  }

  // What is under the pointer.
  function showTip(x, y, fill) {
    tip.replaceChildren();
    fill(tip);
    tip.hidden = false;
    const r = tip.getBoundingClientRect();
    let left = x + 14, top = y + 16;
    if (left + r.width > innerWidth - 6) left = Math.max(6, x - r.width - 14);
    if (top + r.height > innerHeight - 6) top = Math.max(6, y - r.height - 12);
    tip.style.left = left + "px";
    tip.style.top = top + "px";
  }
  function hide() {
    tip.hidden = true;
    document.querySelectorAll(".cursor").forEach((c) => c.remove());
  }
  function inside(svg, event) {
    const p = new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse());
    const b = box(svg);
    return { u: (p.x - b.x) / b.width, v: (p.y - b.y) / b.height };
  }
  function describe(svg, i, j, x, y) {
    const b = box(svg), w = b.width / S, h = b.height / S;
    document.querySelectorAll(".cursor").forEach((c) => c.remove());
    const mark = document.createElementNS(NS, "rect");
    Object.entries({ x: b.x + j * w, y: b.y + i * h, width: w, height: h, class: "cursor" })
      .forEach(([k, v]) => mark.setAttribute(k, v));
    svg.append(mark);
    showTip(x, y, (t) => {
      add(t, "b", `${data.states[i]} → ${data.states[j]}`);
      const name = svg.dataset.map, value = entry(name, i, j);
      const lo = num(item.lo[i * S + j]), hi = num(item.hi[i * S + j]);
      add(t, "div", percent(value), "value");
      if (name === "P")
        add(t, "div", lo === null || hi === null ? "no interval" : `interval ${percent(lo)} to ${percent(hi)}`);
      else add(t, "div", `${name}; the estimate is ${percent(entry("P", i, j))}`);
      if (name === "P")
        Object.keys(item.base).forEach((k) => add(t, "div", `${k}: ${percent(entry(k, i, j))}`));
    });
  }
  maps.forEach((svg) => {
    svg.tabIndex = 0;
    let at = [0, 0];
    const over = (event) => {
      const { u, v } = inside(svg, event);
      if (u < 0 || v < 0 || u >= 1 || v >= 1) return hide();
      at = [Math.floor(v * S), Math.floor(u * S)];
      describe(svg, at[0], at[1], event.clientX, event.clientY);
    };
    svg.addEventListener("pointermove", over);
    svg.addEventListener("pointerdown", over);
    svg.addEventListener("pointerleave", (event) => { if (event.pointerType === "mouse") hide(); });
    svg.addEventListener("click", () => { if (!tip.hidden) choose(at[0], at[1]); });
    svg.addEventListener("blur", hide);
    svg.addEventListener("keydown", (event) => {
      const move = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
      if (event.key === "Escape") hide();
      if (event.key === "Enter") choose(at[0], at[1]);
      if (!move) return;
      event.preventDefault();
      at = at.map((k, d) => Math.min(S - 1, Math.max(0, k + move[d])));
      const b = box(svg), m = svg.getScreenCTM();
      const p = new DOMPoint(b.x + (at[1] + 1) * b.width / S, b.y + (at[0] + 1) * b.height / S).matrixTransform(m);
      describe(svg, at[0], at[1], p.x, p.y);
    });
  });
  if (bars) {
    bars.addEventListener("pointermove", (event) => {
      const i = Math.floor(inside(bars, event).v * S);
      if (i < 0 || i >= S) return hide();
      showTip(event.clientX, event.clientY, (t) => {
        add(t, "b", data.states[i]);
        add(t, "div", percent(num(item.pi[i])), "value");
        add(t, "div", `mean share in the counts: ${percent(num(item.mu[i]))}`);
      });
    });
    bars.addEventListener("pointerleave", hide);
  }

  // Series: the same rules as in collection.py and scale.py.
  function members() {
    const same = data.items.filter((x) =>
      along === "refresh" ? x.g === item.g && x.c === item.c
        : along === "group" ? x.c === item.c : x.g === item.g && x.t !== null);
    if (along === "refresh") return same.sort((a, b) => a.r - b.r);
    const newest = new Map();
    same.forEach((x) => {
      const key = along === "cell" ? x.c : x.g;
      if (!newest.has(key) || newest.get(key).r <= x.r) newest.set(key, x);
    });
    return [...newest.values()].sort((a, b) => (a.t - b.t) || (a.g - b.g));
  }
  const place = (x) => (along === "refresh" ? x.r : along === "group" ? x.g : x.t);
  const placeName = (x) =>
    along === "refresh" ? String(x.r) : along === "group" ? data.groups[x.g] : data.cells[x.c];
  const tickName = (x) => (along === "cell" ? data.ticks[x.c] : placeName(x));
  const clip = (s, n) => ([...s].length > n ? [...s].slice(0, n - 1).join("") + "…" : s);
  function positions(list) {
    const at = list.map(place), low = Math.min(...at), spread = Math.max(...at) - low;
    return at.map((t) => (spread === 0 ? 0.5 : 0.02 + 0.96 * (t - low) / spread));
  }
  function roundRange(low, high) {
    const spread = Math.max(high - low, 1e-3);
    let power = Math.pow(10, Math.floor(Math.log10(spread / STEPS)));
    for (let round = 0; round < 3; round++, power *= 10)
      for (const factor of [1, 2, 2.5, 5]) {
        const step = power * factor, start = Math.floor(low / step + 1e-9) * step;
        if (start + STEPS * step >= high - 1e-9 * step)
          return [low >= 0 && high <= 1 ? Math.min(start, 1 - STEPS * step) : start, step];
      }
    return [low, spread / STEPS];
  }
  function drawSeries(svg) {
    const [i, j] = svg.dataset.series.split(" ").map(Number), k = i * S + j;
    const list = members(), at = positions(list), b = box(svg), banded = along !== "group";
    const rows = list.map((x) => [num(x.P[k]), num(x.lo[k]), num(x.hi[k])]);
    const known = rows.flat().filter((v) => v !== null);
    const [start, step] = known.length ? roundRange(Math.min(...known), Math.max(...known)) : [0, 0.25];
    const X = (t) => (b.x + at[t] * b.width).toFixed(2);
    const Y = (v) => (b.y + b.height * (1 - (v - start) / (STEPS * step))).toFixed(2);
    all(svg, "y").forEach((t, n) => { t.textContent = String(Number((start + n * step).toPrecision(4))); });
    const n = Math.max(...list.map((x) => tickName(x).length)) <= 8 ? 4 : 2;
    const ticks = [...new Set([0, 1, 2, 3, 4].slice(0, n + 1).map((q) => Math.round(q * (list.length - 1) / n)))];
    all(svg, "x").forEach((t, n) => {
      const m = ticks[n];
      t.textContent = m === undefined ? "" : clip(tickName(list[m]), 16);
      if (m === undefined) return;
      t.setAttribute("x", X(m));
      t.setAttribute("text-anchor", at[m] < 0.02001 ? "start" : at[m] > 0.97999 ? "end" : "middle");
    });
    let curve = "", dots = "", band = "", run = [], up = true;
    const close = () => {
      if (run.length && banded)
        band += "M" + run.map((t) => `${X(t)} ${Y(rows[t][2])}`).join("L") + "L" +
          run.slice().reverse().map((t) => `${X(t)} ${Y(rows[t][1])}`).join("L") + "z";
      run = [];
    };
    rows.forEach(([v, lo, hi], t) => {
      if (v !== null) {
        curve += (up ? "M" : "L") + `${X(t)} ${Y(v)}`;
        if (!banded || rows.length <= 60) dots += `M${X(t)} ${Y(v)}h0`;
      }
      up = v === null;
      if (lo === null || hi === null) return close();
      run.push(t);
      if (!banded) band += `M${X(t) - 2} ${Y(lo)}h4V${Y(hi)}h-4z`;
    });
    close();
    const set = (role, d) => all(svg, role).forEach((p) => p.setAttribute("d", d));
    set("band", band);
    set("curve", banded ? curve : "");
    set("dots", dots);
  }
  panels.forEach((svg) => {
    svg.addEventListener("pointermove", (event) => {
      const [i, j] = svg.dataset.series.split(" ").map(Number), list = members(), at = positions(list);
      const { u } = inside(svg, event);
      let t = 0;
      at.forEach((p, n) => { if (Math.abs(p - u) < Math.abs(at[t] - u)) t = n; });
      const x = list[t], lo = num(x.lo[i * S + j]), hi = num(x.hi[i * S + j]);
      showTip(event.clientX, event.clientY, (node) => {
        add(node, "b", (along === "refresh" ? "refresh " : "") + placeName(x));
        add(node, "div", percent(num(x.P[i * S + j])), "value");
        if (lo !== null && hi !== null) add(node, "div", `interval ${percent(lo)} to ${percent(hi)}`);
      });
    });
    svg.addEventListener("pointerleave", hide);
  });
  function choose(i, j) {
    if (!panels.length) return;
    panels[0].dataset.series = `${i} ${j}`;
    const name = `${data.states[i]} → ${data.states[j]}`;
    el("entry-0").textContent = name;
    panels[0].setAttribute("aria-label", name);
    el("from").value = i;
    el("to").value = j;
    drawSeries(panels[0]);
  }

  // The chosen estimate into every drawing and table.
  function drawMap(svg) {
    const name = svg.dataset.map, b = box(svg), w = b.width / S, gap = S <= data.many ? 0.025 : 0;
    const shades = new Map();
    for (let i = 0; i < S; i++)
      for (let j = 0; j < S; j++) {
        const v = entry(name, i, j);
        const shade = v === null ? -1 : Math.round(depth(Math.min(1, Math.max(0, v))) * data.shades);
        if (shade === 0) continue;
        const x = b.x + (j + gap) * w, y = b.y + (i + gap) * w, side = w * (1 - 2 * gap);
        const cell = `M${x.toFixed(2)} ${y.toFixed(2)}h${side.toFixed(2)}v${side.toFixed(2)}h${-side.toFixed(2)}z`;
        shades.set(shade, (shades.get(shade) || "") + cell);
      }
    all(svg, "cells")[0].replaceChildren(...[...shades].map(([shade, d]) => {
      const path = document.createElementNS(NS, "path");
      path.setAttribute("d", d);
      path.setAttribute("class", shade < 0 ? "f-grey" : "f-accent");
      if (shade >= 0) path.setAttribute("opacity", shade / data.shades);
      return path;
    }));
    const write = (role, text) => all(svg, role).forEach((t) => {
      const [i, j] = t.dataset.at.split(" ").map(Number), v = entry(name, i, j);
      t.textContent = text(i, j, v);
      t.setAttribute("class", v !== null && depth(v) > data.dark ? "f-deep" : "f-pale");
    });
    write("n", (i, j, v) => fixed(v, Number(svg.dataset.digits)));
    write("i", (i, j) => {
      const lo = num(item.lo[i * S + j]), hi = num(item.hi[i * S + j]);
      return lo === null || hi === null ? "" : `${fixed(lo, 2)} – ${fixed(hi, 2)}`;
    });
  }
  function drawBars() {
    const b = box(bars), h = b.height / S, pi = item.pi.map(num), mu = item.mu.map(num);
    const most = Math.max(...pi, ...mu.map((v) => v || 0), 1e-6);
    all(bars, "bar").forEach((p, i) =>
      p.setAttribute("d", `M${b.x} ${b.y + h * (i + 0.18)}h${b.width * pi[i] / most}v${h * 0.64}H${b.x}z`));
    all(bars, "share").forEach((t, i) => { t.textContent = fixed(pi[i], 3); });
    all(bars, "marks").forEach((p) => p.setAttribute("d", mu.map((v, i) => (v === null ? ""
      : `M${b.x + b.width * v / most} ${b.y + h * (i + 0.05)}v${h * 0.9}`)).join("")));
  }
  function fillTable() {
    [...el("matrix").tBodies[0].rows].forEach((row, i) => {
      for (let j = 0; j < S; j++) {
        const v = entry("P", i, j), lo = num(item.lo[i * S + j]), hi = num(item.hi[i * S + j]);
        row.cells[j + 1].firstChild.data = v === null ? "unknown" : v.toFixed(4);
        row.cells[j + 1].lastChild.textContent =
          lo === null || hi === null ? "" : `${lo.toFixed(4)} to ${hi.toFixed(4)}`;
      }
    });
  }
  function fillTexts() {
    const text = (k) => data.strings[k];
    [...el("facts").querySelectorAll("dd")].forEach((dd, k) => { dd.textContent = text(item.facts[k]); });
    el("short").replaceChildren();
    item.short.forEach((k) => add(el("short"), "li", text(k)));
    [...el("counts").querySelectorAll(".number")].forEach((td, k) => {
      td.textContent = item.counts[k] === undefined ? "–" : text(item.counts[k]);
    });
    el("findings").replaceChildren(...item.found.map((found) => {
      const [tone, topic, ...texts] = found.map(text), card = document.createElement("article");
      card.className = tone;
      add(add(card, "h3", topic + " "), "span", { act: "▲ act", look: "● look", fine: "✓ fine" }[tone], "tone");
      ["Assumed", "Found", "What to do"].forEach((name, k) => {
        if (!texts[k]) return;
        const p = add(card, "p", "");
        add(p, "b", name + " ");
        p.append(texts[k]);
      });
      return card;
    }));
  }
  function update() {
    hide();
    maps.forEach(drawMap);
    panels.forEach(drawSeries);
    if (bars) drawBars();
    fillTable();
    fillTexts();
  }
  const pick = { g: el("choose-group"), c: el("choose-cell"), r: el("choose-refresh") };
  function select(changed) {
    // The nearest estimate there is: what was just changed counts most, then the rest.
    const want = (x, key) => pick[key] && x[key] === Number(pick[key].value);
    const fit = (x) => 4 * want(x, changed) + 2 * want(x, "g") + want(x, "c") + 0.5 * want(x, "r") + x.r * 1e-9;
    item = data.items.reduce((best, x) => (fit(x) > fit(best) ? x : best));
    for (const key of ["g", "c", "r"]) if (pick[key]) pick[key].value = item[key];
    update();
  }
  for (const key of ["g", "c", "r"]) if (pick[key]) pick[key].addEventListener("change", () => select(key));
  if (panels.length) {
    const [i, j] = panels[0].dataset.series.split(" ");
    el("from").value = i;
    el("to").value = j;
    for (const id of ["from", "to"])
      el(id).addEventListener("change", () => choose(Number(el("from").value), Number(el("to").value)));
    el("along").addEventListener("change", (event) => {
      along = event.target.value;
      el("series-title").textContent = "Selected entries " + event.target.selectedOptions[0].textContent;
      panels.forEach(drawSeries);
    });
  }
  document.querySelectorAll(".controls").forEach((nav) => { nav.hidden = false; });
  addEventListener("scroll", hide, { passive: true });
  addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((d) => { d.open = true; }));
})();
