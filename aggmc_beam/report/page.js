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

  // Where states stand in the maps and the table, and whether people per step are shown.
  let order = [...Array(S).keys()], people = false;
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
  // What a cell shows: a probability, or how many people make that move in a step of the long run.
  const weight = (i) => (item.N || 1) * (num(item.pi[i]) || 0);
  const shownAs = (name, i, j) => {
    const v = entry(name, i, j);
    return v === null || !people ? v : v * weight(i);
  };
  const compact = (v) => (v >= 9999.5 ? `${(v / 1000).toFixed(v >= 99950 ? 0 : 1)}k` : Number(v.toPrecision(3)).toString());
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
  function describe(svg, row, column, x, y) {
    const b = box(svg), w = b.width / S, h = b.height / S, i = order[row], j = order[column];
    document.querySelectorAll(".cursor").forEach((c) => c.remove());
    const mark = document.createElementNS(NS, "rect");
    Object.entries({ x: b.x + column * w, y: b.y + row * h, width: w, height: h, class: "cursor" })
      .forEach(([k, v]) => mark.setAttribute(k, v));
    svg.append(mark);
    showTip(x, y, (t) => {
      add(t, "b", `${data.states[i]} → ${data.states[j]}`);
      const name = svg.dataset.map, value = entry(name, i, j);
      const lo = num(item.lo[i * S + j]), hi = num(item.hi[i * S + j]);
      add(t, "div", percent(value), "value");
      if (item.N && value !== null) add(t, "div", `${compact(value * weight(i))} people per step`);
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
    svg.addEventListener("click", () => { if (!tip.hidden) choose(order[at[0]], order[at[1]]); });
    svg.addEventListener("blur", hide);
    svg.addEventListener("keydown", (event) => {
      const move = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
      if (event.key === "Escape") hide();
      if (event.key === "Enter") choose(order[at[0]], order[at[1]]);
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
    drawGroups();
  }

  // The chosen estimate into every drawing and table.
  function drawMap(svg) {
    const name = svg.dataset.map, b = box(svg), w = b.width / S, gap = S <= data.many ? 0.025 : 0;
    const shades = new Map();
    let most = 1e-300;
    if (people)
      for (let i = 0; i < S; i++)
        for (let j = 0; j < S; j++) if (i !== j) most = Math.max(most, shownAs(name, i, j) || 0);
    const dark = (v) => (people ? Math.sqrt(Math.min(1, Math.max(0, v / most))) : depth(Math.min(1, Math.max(0, v))));
    for (let i = 0; i < S; i++)
      for (let j = 0; j < S; j++) {
        const v = shownAs(name, order[i], order[j]);
        const shade = v === null ? -1 : Math.round(dark(v) * data.shades);
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
      const [i, j] = t.dataset.at.split(" ").map((k) => order[Number(k)]), v = shownAs(name, i, j);
      t.textContent = text(i, j, v);
      t.setAttribute("class", v !== null && dark(v) > data.dark ? "f-deep" : "f-pale");
    });
    write("n", (i, j, v) => (people && v !== null ? compact(v) : fixed(v, Number(svg.dataset.digits))));
    for (const role of ["row", "column"])
      all(svg, role).forEach((t) => {
        const text = data.states[order[Number(t.dataset.at)]].trim().replace(/\s+/g, " ") || "(blank)";
        t.textContent = clip(text, name === "P" ? 14 : 10);
      });
    write("i", (i, j) => {
      const lo = num(item.lo[i * S + j]), hi = num(item.hi[i * S + j]);
      if (lo === null || hi === null) return "";
      return people ? `${compact(lo * weight(i))} – ${compact(hi * weight(i))}` : `${fixed(lo, 2)} – ${fixed(hi, 2)}`;
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
    const head = el("matrix").tHead.rows[0].cells;
    [...el("matrix").tBodies[0].rows].forEach((row, place) => {
      const i = order[place];
      row.cells[0].textContent = data.states[i];
      head[place + 1].textContent = data.states[i];
      for (let k = 0; k < S; k++) {
        const j = order[k];
        const v = entry("P", i, j), lo = num(item.lo[i * S + j]), hi = num(item.hi[i * S + j]);
        row.cells[k + 1].firstChild.data = v === null ? "unknown" : v.toFixed(4);
        row.cells[k + 1].lastChild.textContent =
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
    drawGroups();
    fillTable();
    fillTexts();
    if (el("slide")) el("slide").value = item.c;
    search();
  }

  // All groups below each other, each with its interval.
  function drawGroups() {
    const home = el("groups");
    if (!home) return;
    const newest = new Map();
    data.items.forEach((x) => {
      if (x.c === item.c && !(newest.has(x.g) && newest.get(x.g).r > x.r)) newest.set(x.g, x);
    });
    const list = [...newest.values()].sort((a, b) => a.g - b.g);
    const [i, j] = (panels.length ? panels[0].dataset.series : "0 0").split(" ").map(Number), k = i * S + j;
    const known = list.flatMap((x) => [num(x.P[k]), num(x.lo[k]), num(x.hi[k])]).filter((v) => v !== null);
    const [start, step] = known.length ? roundRange(Math.min(...known), Math.max(...known)) : [0, 0.25];
    const left = 190, width = 400, high = 20, X = (v) => left + width * (v - start) / (STEPS * step);
    const svg = document.createElementNS(NS, "svg");
    svg.setAttribute("viewBox", `0 0 640 ${list.length * high + 30}`);
    svg.setAttribute("role", "img");
    svg.setAttribute("aria-label", `${data.states[i]} → ${data.states[j]} in every group`);
    const put = (parent, name, attributes, text) => {
      const node = document.createElementNS(NS, name);
      Object.entries(attributes).forEach(([a, v]) => node.setAttribute(a, v));
      if (text !== undefined) node.textContent = text;
      parent.append(node);
      return node;
    };
    for (let n = 0; n <= STEPS; n++) {
      const x = X(start + n * step);
      put(svg, "path", { d: `M${x} 22V${list.length * high + 24}`, class: "s-line", "stroke-width": 1 });
      put(svg, "text", { x, y: 14, class: "f-soft", "font-size": 12, "text-anchor": "middle" },
        String(Number((start + n * step).toPrecision(4))));
    }
    list.forEach((x, row) => {
      const y = 34 + row * high, v = num(x.P[k]), lo = num(x.lo[k]), hi = num(x.hi[k]);
      const g = put(svg, "g", {});
      put(g, "title", {}, `${data.groups[x.g]}: ${percent(v)}` +
        (lo === null || hi === null ? "" : `, ${percent(lo)} to ${percent(hi)}`));
      put(g, "text", { x: left - 10, y: y + 4, class: "f-ink", "font-size": 12, "text-anchor": "end" },
        clip(data.groups[x.g], 28));
      if (lo !== null && hi !== null)
        put(g, "path", { d: `M${X(lo)} ${y}H${X(hi)}`, class: "s-accent", "stroke-width": 2 });
      if (v !== null) put(g, "circle", { cx: X(v), cy: y, r: 4, class: x === item ? "f-ink" : "f-accent" });
      g.addEventListener("click", () => { item = x; if (pick.g) pick.g.value = x.g; update(); });
    });
    home.replaceChildren(svg);
    el("groups-title").textContent = `Groups side by side: ${data.states[i]} → ${data.states[j]}`;
  }

  // The order of the states.
  function sortStates(how) {
    const by = (value) => [...Array(S).keys()].sort((a, b) => (value(b) - value(a)) || a - b);
    const stay = (i) => num(item.P[i * S + i]);
    if (how === "share") order = by((i) => item.pi[i]);
    else if (how === "stay") order = by((i) => (stay(i) === null ? -1 : stay(i)));
    else if (how === "name") order = [...Array(S).keys()].sort((a, b) => data.states[a].localeCompare(data.states[b]));
    else if (how === "alike") {
      // Begin with the largest state; next to each comes the one that exchanges most with it.
      const flow = (i, j) => weight(i) * (entry("P", i, j) || 0) + weight(j) * (entry("P", j, i) || 0);
      const left = new Set(by((i) => item.pi[i]));
      order = [];
      for (let last = [...left][0]; last !== undefined;) {
        order.push(last);
        left.delete(last);
        let next, most = -1;
        left.forEach((j) => { const f = flow(last, j); if (f > most) { most = f; next = j; } });
        last = next;
      }
    } else order = [...Array(S).keys()];
  }

  // Rows and columns of the states that are looked for.
  function search() {
    const wanted = el("find") ? el("find").value.trim().toLowerCase() : "";
    document.querySelectorAll(".found").forEach((c) => c.remove());
    const hit = (i) => wanted !== "" && data.states[i].toLowerCase().includes(wanted);
    [...el("matrix").tBodies[0].rows].forEach((row, k) => { row.hidden = wanted !== "" && !hit(order[k]); });
    maps.forEach((svg) => {
      const b = box(svg), w = b.width / S, h = b.height / S;
      order.forEach((i, k) => {
        if (!hit(i)) return;
        for (const a of [{ x: b.x, y: b.y + k * h, width: b.width, height: h },
          { x: b.x + k * w, y: b.y, width: w, height: b.height }]) {
          const mark = document.createElementNS(NS, "rect");
          Object.entries({ ...a, class: "found" }).forEach(([name, v]) => mark.setAttribute(name, v));
          svg.append(mark);
        }
      });
    });
  }

  // Files of what is shown.
  function save(name, type, text) {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([text], { type }));
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  }
  const quoted = (v) => {
    const text = v === null || v === undefined ? "" : String(v);
    const safe = typeof v === "string" && /^[=+\-@\t\r]/.test(text) ? `'${text}` : text;
    return /[",\n\r]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
  };
  const csv = (rows) => rows.map((row) => row.map(quoted).join(",") + "\n").join("");
  const tables = {
    matrix: () => [["from", "to", "probability", "lower", "upper"], ...order.flatMap((i) => order.map((j) => {
      const k = i * S + j;
      return [data.states[i], data.states[j], num(item.P[k]), num(item.lo[k]), num(item.hi[k])];
    }))],
    series: () => {
      const [i, j] = panels[0].dataset.series.split(" ").map(Number), k = i * S + j;
      const head = [along, "from", "to", "probability", "lower", "upper"];
      return [head, ...members().map((x) =>
        [placeName(x), data.states[i], data.states[j], num(x.P[k]), num(x.lo[k]), num(x.hi[k])])];
    },
    all: () => [...el("all").rows].map((row) => [...row.cells].map((c) => c.textContent)),
  };
  function styled(svg) {
    // The colours of the page as they are now, so that the picture stands by itself.
    const copy = svg.cloneNode(true), from = [svg, ...svg.querySelectorAll("*")];
    [copy, ...copy.querySelectorAll("*")].forEach((node, k) => {
      const style = getComputedStyle(from[k]);
      if (node.getAttribute("class"))
        for (const name of ["fill", "stroke"]) node.setAttribute(name, style[name]);
      node.removeAttribute("class");
    });
    copy.setAttribute("xmlns", NS);
    copy.setAttribute("font-family", "sans-serif");
    return new XMLSerializer().serializeToString(copy);
  }
  document.querySelectorAll("button[data-csv]").forEach((b) => b.addEventListener("click", () =>
    save(`${b.dataset.csv}.csv`, "text/csv", csv(tables[b.dataset.csv]()))));
  document.querySelectorAll("button[data-svg]").forEach((b) => b.addEventListener("click", () =>
    save("figure.svg", "image/svg+xml", styled(document.querySelector(b.dataset.svg)))));
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
  el("sort").addEventListener("change", (event) => { sortStates(event.target.value); update(); });
  el("show").addEventListener("change", (event) => { people = event.target.value === "people"; update(); });
  el("find").addEventListener("input", search);
  if (el("slide")) {
    // The cells of the group and refresh that are shown, one after another.
    let playing = null;
    const cell = (c) => {
      if (pick.c) pick.c.value = c;
      select("c");
    };
    const stop = () => { clearInterval(playing); playing = null; el("play").textContent = "▶ play"; };
    el("slide").addEventListener("input", (event) => { stop(); cell(Number(event.target.value)); });
    el("play").addEventListener("click", () => {
      if (playing !== null) return stop();
      el("play").textContent = "■ stop";
      const places = [...new Set(data.items.filter((x) => x.g === item.g).map((x) => x.c))].sort((a, b) => a - b);
      playing = setInterval(() => cell(places[(places.indexOf(item.c) + 1) % places.length]), 900);
    });
  }
  drawGroups();
  document.querySelectorAll(".controls").forEach((nav) => { nav.hidden = false; });
  addEventListener("scroll", hide, { passive: true });
  addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((d) => { d.open = true; }));
})();
