"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const at = (id) => document.getElementById(id);
  const events = data.events.map(([x, lane, values], number) => ({ number, x, lane, values, matches: [] }));
  data.matches.forEach((match, number) => match.events.forEach((one) => events[one].matches.push(number)));

  const AXIS = 40, MIN_LANE = 38, MAX_LANE = 150, NO_TIME = 62;
  const radius = events.length > 3000 ? 2.6 : events.length > 700 ? 3.5 : 5;
  const hasNoTime = events.some((one) => one.x === null);
  const placed = events.filter((one) => one.x !== null);
  const last = placed.reduce((most, one) => Math.max(most, one.x), 0);
  const isTime = data.axis.kind === "time";
  const pad = last > 0 ? last * 0.035 : isTime ? 1000 : 1;
  const whole = [-pad, last + pad];
  let view = [...whole];
  let selected = -1, hovered = [], pointedAt = -1;
  let plot = null;

  // --- drawing -----------------------------------------------------------------------

  function svg(name, attributes, parent, text) {
    const made = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    if (text !== undefined) made.textContent = text;
    if (parent) parent.append(made);
    return made;
  }

  function html(name, attributes, parent, text) {
    const made = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    if (text !== undefined) made.textContent = text;
    if (parent) parent.append(made);
    return made;
  }

  function geometry() {
    const width = Math.max(320, at("chart").clientWidth);
    const longest = Math.max(4, ...data.lanes.map((name) => [...name].length));
    const left = Math.min(Math.max(70, longest * 7.6 + 22), width * 0.28);
    return { width, left: left + (hasNoTime ? NO_TIME : 0), names: left, right: width - 10 };
  }

  function scale(box) {
    const [first, end] = view;
    return (x) => (x === null ? box.names + NO_TIME / 2 : box.left + ((x - first) / (end - first)) * (box.right - box.left));
  }

  // Dots that would cover each other stand above and below the middle of their lane, the nearest free level first;
  // where that takes more than the lane has, they come closer.
  const STEP = radius * 2 + 1.5;
  const heightOf = (highest) => 2 * highest * STEP + 2 * radius + 16;

  function levels(inLane, toX) {
    const result = new Map();
    const recent = [], taken = new Set();
    let highest = 0;
    for (const one of inLane) {
      const x = toX(one.x);
      while (recent.length && recent[0].x < x - STEP) taken.delete(recent.shift().level);
      let level = 0;
      while (taken.has(level)) level = level > 0 ? -level : 1 - level;
      highest = Math.max(highest, Math.abs(level));
      taken.add(level);
      recent.push({ x, level });
      result.set(one.number, level);
    }
    return { result, highest };
  }

  const byLane = data.lanes.map((_, lane) => events.filter((one) => one.lane === lane).sort((a, b) => (a.x ?? -1) - (b.x ?? -1)));
  let laneHeights = null;

  function draw() {
    const box = geometry();
    const toX = scale(box);
    if (laneHeights === null || laneHeights.width !== box.width) {
      const kept = view;
      view = [...whole];
      const wide = scale(box);
      const fitting = (inLane) => Math.min(MAX_LANE, Math.max(MIN_LANE, heightOf(levels(inLane, wide).highest)));
      laneHeights = { width: box.width, all: byLane.map(fitting) };
      view = kept;
    }
    const tops = [];
    let height = 0;
    for (const one of laneHeights.all) {
      tops.push(height);
      height += one + 4;
    }
    drawAxis(box, toX);
    const root = at("lanes");
    root.replaceChildren();
    root.setAttribute("viewBox", `0 0 ${box.width} ${height}`);
    root.setAttribute("height", height);
    drawLanes(root, box, tops, toX, height);
    const clip = svg("clipPath", { id: "clip" }, root);
    svg("rect", { x: box.names, y: 0, width: box.width - box.names, height }, clip);
    const group = svg("g", { id: "plot", "clip-path": "url(#clip)" }, root);
    svg("rect", { class: "back", x: box.names, y: 0, width: box.width - box.names, height }, group);
    const where = new Map();
    byLane.forEach((inLane, lane) => {
      const middle = tops[lane] + laneHeights.all[lane] / 2;
      const { result, highest } = levels(inLane, toX);
      const room = laneHeights.all[lane] - 2 * radius - 16;
      const step = heightOf(highest) > laneHeights.all[lane] ? room / (2 * highest) : STEP;
      for (const one of inLane) {
        where.set(one.number, [toX(one.x), middle + result.get(one.number) * step]);
        one.isCrowded = step < radius;
      }
    });
    plot = { box, toX, where, group, base: svg("g", { class: "base" }, group), top: svg("g", { class: "top" }, group) };
    const strength = Math.max(0.14, Math.min(0.75, 14 / data.matches.length)).toFixed(2);
    const links = svg("g", {}, plot.base);
    const reaches = svg("g", {}, plot.base);
    data.matches.forEach((match, number) => {
      const d = linkOf(match);
      if (d) {
        svg("path", { class: "link", d, "data-match": number, "stroke-opacity": strength }, links);
        svg("path", { class: "reach", d, "data-match": number }, reaches);
      }
    });
    for (const one of events) dot(one, plot.base);
    highlight();
    at("all").disabled = view[0] === whole[0] && view[1] === whole[1];
  }

  function dot(one, parent, extra = "") {
    const [x, y] = plot.where.get(one.number);
    return svg("circle", {
      class: `event${one.x === null ? " none" : ""}${one.isCrowded ? " crowded" : ""}${extra}`, cx: x.toFixed(1), cy: y.toFixed(1), r: radius,
      "data-event": one.number,
    }, parent);
  }

  function linkOf(match) {
    const points = match.events.map((one) => plot.where.get(one));
    if (points.length < 2) return "";
    let d = `M${points[0][0].toFixed(1)} ${points[0][1].toFixed(1)}`;
    points.slice(1).forEach(([x, y], number) => {
      const [before, above] = points[number];
      const middle = ((before + x) / 2).toFixed(1);
      d += `C${middle} ${above.toFixed(1)} ${middle} ${y.toFixed(1)} ${x.toFixed(1)} ${y.toFixed(1)}`;
    });
    return d;
  }

  function drawLanes(root, box, tops, toX, height) {
    data.lanes.forEach((name, lane) => {
      const tall = laneHeights.all[lane], middle = tops[lane] + tall / 2;
      svg("rect", { class: "lane", x: 0, y: tops[lane], width: box.width, height: tall, rx: 5 }, root);
      svg("path", { class: "lane-line", d: `M${box.names} ${middle}H${box.width}` }, root);
      const most = Math.max(4, Math.floor((box.names - 20) / 7.4));
      const letters = [...name];
      const text = svg("text", { class: "lane-name", x: 11, y: middle + 4 }, root);
      text.append(letters.length > most ? letters.slice(0, most - 1).join("") + "…" : name);
      svg("title", {}, text, `${name}: ${plural(byLane[lane].length, "event")}`);
    });
    for (const { x } of ticks(box)) svg("path", { class: "grid", d: `M${toX(x).toFixed(1)} 0V${height}` }, root);
    if (hasNoTime) svg("path", { class: "lane-line", d: `M${box.left - 4} 0V${height}`, "stroke-dasharray": "2 3" }, root);
  }

  // --- the axis ----------------------------------------------------------------------

  const SECOND = 1000, MINUTE = 60 * SECOND, HOUR = 60 * MINUTE, DAY = 24 * HOUR;
  const STEPS = [
    ...[1, 2, 5, 10, 20, 50, 100, 200, 500].map((n) => n / 1000), 1, 2, 5, 10, 20, 50, 100, 200, 500,
    ...[1, 2, 5, 10, 15, 30].map((n) => n * SECOND), ...[1, 2, 5, 10, 15, 30].map((n) => n * MINUTE),
    ...[1, 2, 3, 6, 12].map((n) => n * HOUR), ...[1, 2, 7, 14].map((n) => n * DAY),
  ];
  const two = (n) => String(n).padStart(2, "0");
  const MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

  function ticks(box) {
    const wanted = Math.max(2, (box.right - box.left) / 110);
    const rough = (view[1] - view[0]) / wanted;
    return isTime ? timeTicks(rough) : numberTicks(rough);
  }

  function numberTicks(rough) {
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].find((n) => n * power >= rough) * power;
    const { origin } = data.axis;
    const digits = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
    const format = new Intl.NumberFormat("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits });
    const found = [];
    const first = Math.ceil((view[0] + origin) / step);
    for (let n = first; n * step - origin <= view[1] && found.length < 60; n++) {
      found.push({ x: n * step - origin, text: format.format(n * step || 0) });
    }
    return found;
  }

  function timeTicks(rough) {
    const { origin } = data.axis;
    const step = STEPS.find((one) => one >= rough);
    const found = [];
    if (step === undefined) return calendarTicks(rough);
    for (let n = Math.ceil((view[0] + origin) / step); n * step - origin <= view[1] && found.length < 60; n++) {
      found.push({ x: n * step - origin, text: clock(n * step, step) });
    }
    return found;
  }

  function calendarTicks(rough) {
    const { origin } = data.axis;
    const months = [1, 2, 3, 6, 12, 24, 60, 120, 240, 600, 1200, 6000, 12000].find((n) => n * 30.4 * DAY >= rough) || 60000;
    const begin = new Date(view[0] + origin);
    const found = [];
    let month = Math.floor((begin.getUTCFullYear() * 12 + begin.getUTCMonth()) / months) * months;
    for (; found.length < 60; month += months) {
      const day = new Date(0);
      day.setUTCFullYear(Math.floor(month / 12), month % 12, 1);
      const x = day.getTime() - origin;
      if (x > view[1]) break;
      const year = day.getUTCFullYear();
      if (x >= view[0]) found.push({ x, text: months % 12 === 0 ? String(year) : `${MONTHS[day.getUTCMonth()]} ${year}` });
    }
    return found;
  }

  function clock(moment, step) {
    const t = new Date(Math.floor(moment + 1e-6));
    if (step >= DAY || (step >= HOUR && t.getUTCHours() === 0 && t.getUTCMinutes() === 0)) return `${t.getUTCDate()} ${MONTHS[t.getUTCMonth()]}`;
    const minutes = `${two(t.getUTCHours())}:${two(t.getUTCMinutes())}`;
    if (step >= MINUTE) return minutes;
    const seconds = `${minutes}:${two(t.getUTCSeconds())}`;
    if (step >= SECOND) return seconds;
    const milliseconds = `${seconds}.${String(t.getUTCMilliseconds()).padStart(3, "0")}`;
    if (step >= 1) return milliseconds;
    return milliseconds + String(Math.round((moment - Math.floor(moment + 1e-6)) * 1000)).padStart(3, "0");
  }

  function dayAt(x) {
    const day = new Date(Math.floor(x + data.axis.origin + 1e-6));
    return `${day.getUTCDate()} ${MONTHS[day.getUTCMonth()]} ${day.getUTCFullYear()}`;
  }

  function drawAxis(box, toX) {
    const root = at("axis");
    root.replaceChildren();
    root.setAttribute("viewBox", `0 0 ${box.width} ${AXIS}`);
    root.setAttribute("height", AXIS);
    const shown = ticks(box);
    const unit = svg("text", { x: 11, y: 12 }, root);
    svg("tspan", { class: "unit" }, unit, data.axis.name);
    const beside = isTime ? [/:/.test(shown[0]?.text ?? ":") ? dayAt(Math.max(0, view[0])) : "", data.axis.zone] : [];
    unit.append(beside.filter(Boolean).map((text) => `  ${text}`).join(""));
    if (hasNoTime) svg("text", { x: box.names + NO_TIME / 2, y: 31, "text-anchor": "middle" }, root, "NULL");
    for (const { x, text } of shown) {
      const px = toX(x);
      if (px < box.left - 1 || px > box.right + 1) continue;
      svg("path", { d: `M${px.toFixed(1)} 35V40` }, root);
      const anchor = px > box.right - 34 ? "end" : px < box.left + 20 && box.left - box.names < 5 ? "start" : "middle";
      svg("text", { x: px.toFixed(1), y: 31, "text-anchor": anchor }, root, text);
    }
  }

  // --- what is under the pointer, and what is selected ---------------------------------

  function highlight() {
    const hot = hovered.length ? hovered : selected >= 0 ? [selected] : [];
    plot.top.replaceChildren();
    plot.group.classList.toggle("dimmed", hot.length > 0);
    const raised = new Set();
    for (const number of hot) {
      const d = linkOf(data.matches[number]);
      if (d) svg("path", { class: "link", d }, plot.top);
      data.matches[number].events.forEach((one) => raised.add(one));
    }
    for (const one of raised) dot(events[one], plot.top, one === pointedAt ? " at" : "");
    const marked = new Set(hovered);
    [...at("list").children].forEach((item, number) => item.classList.toggle("hot", marked.has(number)));
  }

  function hover(numbers, event = -1) {
    hovered = numbers;
    pointedAt = event;
    highlight();
  }

  // Only the list scrolls, not the page.
  function bringIntoView(item) {
    const list = at("list");
    if (item.offsetTop < list.scrollTop) list.scrollTop = item.offsetTop;
    const below = item.offsetTop + item.offsetHeight - list.clientHeight;
    if (below > list.scrollTop) list.scrollTop = below;
  }

  function select(number) {
    const items = at("list").children;
    if (items[selected]) items[selected].setAttribute("aria-selected", "false");
    selected = number;
    at("fit").disabled = number < 0;
    if (items[number]) {
      items[number].setAttribute("aria-selected", "true");
      at("list").setAttribute("aria-activedescendant", items[number].id);
      bringIntoView(items[number]);
    } else {
      at("list").removeAttribute("aria-activedescendant");
    }
    details();
    highlight();
  }

  function details() {
    const root = at("details");
    root.replaceChildren();
    if (selected < 0) {
      html("p", { class: "hint" }, root, "Select a match to see its events: click, or use the arrow keys. F zooms to it; Ctrl and the wheel zoom, dragging moves.");
      return;
    }
    const match = data.matches[selected];
    html("h2", {}, root, `Match ${selected + 1}${match.key ? ": " + match.key : ""}`);
    if (match.more) html("p", {}, root, `and ${match.more.toLocaleString("en-US")} more events, which are not shown`);
    const used = [...new Set(match.events.flatMap((one) => events[one].values.map(([name]) => name)))];
    const table = html("table", {}, root);
    const head = html("tr", {}, html("thead", {}, table));
    html("th", { scope: "col" }, head, "variable");
    for (const name of used) html("th", { scope: "col" }, head, data.attributes[name]);
    const body = html("tbody", {}, table);
    for (const number of match.events) {
      const row = html("tr", { "data-event": number }, body);
      html("td", {}, row, data.lanes[events[number].lane]);
      const values = new Map(events[number].values);
      for (const name of used) cell("td", values.has(name) ? values.get(name) : "", row);
    }
  }

  function cell(name, value, parent) {
    if (value === null) html(name, { class: "null" }, parent, "NULL");
    else html(name, { title: value }, parent, value);
  }

  function tip(one, x, y) {
    const root = at("tip");
    root.replaceChildren();
    html("h3", {}, root, data.lanes[one.lane]);
    const list = html("dl", {}, root);
    for (const [name, value] of one.values.slice(0, 24)) {
      html("dt", {}, list, data.attributes[name]);
      cell("dd", value, list);
    }
    const n = one.matches.length;
    html("p", {}, root, n === 1 ? `match ${one.matches[0] + 1}` : `in ${plural(n, "match")} of those shown`);
    showTip(x, y);
  }

  function matchTip(number, x, y) {
    const root = at("tip");
    root.replaceChildren();
    html("h3", {}, root, `Match ${number + 1}`);
    const match = data.matches[number];
    html("p", {}, root, [span(match), match.key, plural(match.events.length + match.more, "event")].filter(Boolean).join(" · "));
    showTip(x, y);
  }

  function showTip(x, y) {
    const root = at("tip");
    root.hidden = false;
    const { width, height } = root.getBoundingClientRect();
    const room = { x: window.innerWidth, y: window.innerHeight };
    root.style.left = `${Math.max(4, x + 16 + width > room.x ? x - width - 12 : x + 16)}px`;
    root.style.top = `${Math.max(4, Math.min(y + 14, room.y - height - 6))}px`;
  }

  function plural(n, noun) {
    const many = noun === "match" ? "matches" : noun + "s";
    return `${n.toLocaleString("en-US")} ${n === 1 ? noun : many}`;
  }

  function span(match) {
    const [start, end] = match.span;
    return start === null && end === null ? "" : `${start ?? "NULL"} – ${end ?? "NULL"}`;
  }

  function fillList() {
    data.matches.forEach((match, number) => {
      const item = html("div", { class: "match", role: "option", id: `match-${number + 1}`, "aria-selected": "false" }, at("list"));
      html("b", {}, item, String(number + 1));
      html("span", {}, item, [match.key, plural(match.events.length + match.more, "event")].filter(Boolean).join(" · "));
      if (span(match)) {
        const when = html("small", {}, item);
        for (const part of span(match).split(/(?<=–) /)) when.append(html("span", {}, null, part), " ");
      }
    });
  }

  // --- zoom --------------------------------------------------------------------------

  let isWaiting = false;
  function drawSoon() {
    if (isWaiting) return;
    isWaiting = true;
    requestAnimationFrame(() => { isWaiting = false; draw(); });
  }

  function show(first, end) {
    const size = Math.max(end - first, (whole[1] - whole[0]) / 1e7);
    if (size >= whole[1] - whole[0]) view = [...whole];
    else {
      const begin = Math.min(Math.max(first, whole[0]), whole[1] - size);
      view = [begin, begin + size];
    }
    drawSoon();
  }

  function zoom(factor, around = (view[0] + view[1]) / 2) {
    show(around - (around - view[0]) * factor, around + (view[1] - around) * factor);
  }

  function fit() {
    if (selected < 0) return;
    const places = data.matches[selected].events.map((one) => events[one].x).filter((x) => x !== null);
    if (!places.length) return;
    const first = Math.min(...places), end = Math.max(...places);
    const room = (end - first) * 0.12 || (isTime ? 500 : 0.5);
    show(first - room, end + room);
  }

  function valueAt(clientX) {
    const { box } = plot;
    const shown = at("lanes").getBoundingClientRect();
    const x = ((clientX - shown.left) / shown.width) * box.width;
    return view[0] + ((x - box.left) / (box.right - box.left)) * (view[1] - view[0]);
  }

  // --- start -------------------------------------------------------------------------

  function listen() {
    const lanes = at("lanes"), list = at("list");
    lanes.addEventListener("pointerover", (event) => {
      const { event: number, match } = event.target.dataset;
      if (number !== undefined) {
        hover(events[number].matches, Number(number));
        tip(events[number], event.clientX, event.clientY);
      } else if (match !== undefined) {
        hover([Number(match)]);
        matchTip(Number(match), event.clientX, event.clientY);
      }
    });
    lanes.addEventListener("pointerout", (event) => {
      if (event.target.dataset.event === undefined && event.target.dataset.match === undefined) return;
      at("tip").hidden = true;
      hover([]);
    });
    lanes.addEventListener("click", (event) => {
      const { event: number, match } = event.target.dataset;
      if (number !== undefined) {
        // Clicking on an event that several matches share goes through them.
        const those = events[number].matches;
        select(those[(those.indexOf(selected) + 1) % those.length]);
      } else if (match !== undefined) select(Number(match));
    });
    lanes.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && !event.metaKey) return;
      event.preventDefault();
      zoom(Math.exp(Math.max(-1, Math.min(1, event.deltaY * 0.003))), valueAt(event.clientX));
    }, { passive: false });
    lanes.addEventListener("dblclick", (event) => zoom(0.5, valueAt(event.clientX)));
    let grip = null;
    lanes.addEventListener("pointerdown", (event) => { grip = { x: event.clientX, view: [...view] }; });
    window.addEventListener("pointermove", (event) => {
      if (!grip || Math.abs(event.clientX - grip.x) < 4) return;
      const moved = ((grip.x - event.clientX) / (plot.box.right - plot.box.left)) * (grip.view[1] - grip.view[0]);
      show(grip.view[0] + moved, grip.view[1] + moved);
    });
    window.addEventListener("pointerup", () => { grip = null; });
    const itemOf = (event) => [...list.children].indexOf(event.target.closest(".match"));
    list.addEventListener("pointerover", (event) => { const n = itemOf(event); if (n >= 0) hover([n]); });
    list.addEventListener("dblclick", (event) => { const n = itemOf(event); if (n >= 0) { select(n); fit(); } });
    list.addEventListener("pointerleave", () => hover([]));
    list.addEventListener("click", (event) => { const n = itemOf(event); if (n >= 0) select(n === selected ? -1 : n); });
    at("closer").addEventListener("click", () => zoom(0.5));
    at("wider").addEventListener("click", () => zoom(2));
    at("fit").addEventListener("click", fit);
    at("all").addEventListener("click", () => show(...whole));
    document.addEventListener("keydown", onKey);
    window.addEventListener("resize", drawSoon);
  }

  function onKey(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest?.("details")) return;
    const end = data.matches.length - 1;
    const moves = {
      ArrowDown: Math.min(end, selected + 1), ArrowUp: selected < 0 ? end : Math.max(0, selected - 1), Home: 0, End: end,
      PageDown: Math.min(end, selected + 10), PageUp: Math.max(0, selected - 10), Escape: -1,
    };
    const actions = { "+": () => zoom(0.5), "-": () => zoom(2), 0: () => show(...whole), f: fit };
    if (event.key in moves) select(moves[event.key]);
    else if (event.key in actions) actions[event.key]();
    else return;
    event.preventDefault();
  }

  if (data.note) {
    at("note").textContent = data.note;
    at("note").hidden = false;
  }
  if (!data.matches.length || !events.length) {
    at("chart").replaceChildren(html("p", { class: "empty" }, null,
      data.matches.length ? "These matches hold no events: the query selects none." : "There are no matches."));
    at("list").hidden = !data.matches.length;
    fillList();
    return;
  }
  at("tools").hidden = false;
  fillList();
  draw();
  listen();
  details();
  const asked = /^#match=(\d+)$/.exec(location.hash);
  if (asked && data.matches[asked[1] - 1]) select(asked[1] - 1);
  else if (data.matches.length === 1) select(0);
})();
