"use strict";
// Drawing: elements, numbers as text, and pictures as SVG whose parts show their values.
// Ids may hold anything, so text enters the page as text only (append, textContent).

const tips = new WeakMap();
const actions = new WeakMap();

function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key === "class") made.className = value;
    else made.setAttribute(key, value);
  }
  made.append(...children);
  return made;
}

function shape(name, attributes = {}, text = null) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== null) made.textContent = text;
  return made;
}

const line = (kind, x1, y1, x2, y2) => shape("line", { class: kind, x1, y1, x2, y2 });

// Give a part of a picture a tip to show when pointed at, and an action for a click.
function withTip(part, tip, action = null) {
  tips.set(part, tip);
  if (action) actions.set(part, action);
  return part;
}

function fixed(x, decimals) {
  if (x === null || !Number.isFinite(x)) return "–";
  if (decimals > 8 || Math.abs(x) >= 1e15) return x === 0 ? "0" : x.toPrecision(4);
  const text = x.toFixed(Math.max(decimals, 0));
  return Number(text) === 0 ? text.replace("-", "") : text;
}

function signed(x, decimals) {
  const text = fixed(x, decimals);
  return x > 0 && Number(text) !== 0 ? `+${text}` : text;
}

function brief(x) {
  if (x === null || !Number.isFinite(x)) return "–";
  if (x === 0) return "0";
  const size = Math.floor(Math.log10(Math.abs(x)));
  return size < -5 || size > 14 ? x.toPrecision(3) : fixed(x, 2 - size);
}

const count = (n) => n.toLocaleString("en-US");
const percent = (share, decimals = 0) => `${(100 * share).toFixed(decimals)} %`;
const plural = (n, word) => `${count(n)} ${word}${n === 1 ? "" : "s"}`;

// Round numbers that cover an interval, about as many as asked for.
function ticks(low, high, about = 5) {
  const raw = (high - low) / about;
  if (!(raw > 0) || !Number.isFinite(raw)) return [low];
  const unit = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((m) => m * unit).find((s) => s >= raw);
  const found = [];
  for (let k = Math.ceil(low / step - 1e-9); k * step <= high + 1e-9 * step; k++) {
    found.push(Number((k * step).toPrecision(12)));
  }
  return found;
}

function logTicks(low, high) {
  const found = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power++) {
    for (const m of high / low > 1000 ? [1] : high / low > 30 ? [1, 3] : [1, 2, 5]) {
      const at = m * 10 ** power;
      if (at >= low * 0.999 && at <= high * 1.001) found.push(at);
    }
  }
  return found;
}

// A scale from numbers to coordinates; log scales need positive numbers.
function scale(low, high, from, to, log = false) {
  const f = log ? Math.log : (x) => x;
  const span = f(high) - f(low) || 1;
  const at = (x) => from + ((f(x) - f(low)) / span) * (to - from);
  return Object.assign(at, { low, high, log });
}

function padded(values, share = 0.05) {
  const finite = values.filter((x) => x !== null && Number.isFinite(x));
  let low = finite.reduce((a, b) => Math.min(a, b), Infinity);
  let high = finite.reduce((a, b) => Math.max(a, b), -Infinity);
  if (!finite.length) [low, high] = [0, 1];
  if (low === high) {
    const around = Math.abs(low) * 0.05 || 1;
    return [low - around, high + around];
  }
  const room = share * (high - low);
  return [low - room, high + room];
}

// As few digits as give the ticks exactly.
function tickTexts(values) {
  for (let figures = 1; figures < 12; figures++) {
    const texts = values.map((v) => (Math.abs(v) >= 1e6 || (v !== 0 && Math.abs(v) < 1e-3) ? v.toExponential(figures - 1) : String(Number(v.toPrecision(figures)))));
    if (values.every((v, k) => Math.abs(Number(texts[k]) - v) <= 1e-9 * Math.abs(v))) return texts;
  }
  return values.map(String);
}

const LEFT = 56, RIGHT = 10, TOP = 8, BOTTOM = 36;

// As wide as the page allows, so that letters keep their size.
function canvas(height, label, left = LEFT, most = 560) {
  const width = Math.max(Math.min(most, document.documentElement.clientWidth - 30), 240);
  const svg = shape("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label });
  return { svg, width, left, right: width - RIGHT, top: TOP, bottom: height - BOTTOM };
}

function axes(place, x, y, names, format = null) {
  const { svg, left, right, top, bottom } = place;
  const marks = (axis, about) => {
    const at = axis.log ? logTicks(axis.low, axis.high) : ticks(axis.low, axis.high, about);
    const texts = format ? at.map((v) => format(v)) : tickTexts(at);
    return at.map((value, k) => [axis(value), texts[k]]);
  };
  for (const [at, text] of y ? marks(y, 4) : []) {
    svg.append(line("grid", left, at, right, at), shape("text", { x: left - 6, y: at + 4, "text-anchor": "end" }, text));
  }
  svg.append(line("axis", left, bottom, right, bottom));
  for (const [at, text] of marks(x, 6)) {
    svg.append(line("axis", at, bottom, at, bottom + 4), shape("text", { x: at, y: bottom + 17, "text-anchor": "middle" }, text));
  }
  const middle = (left + right) / 2;
  svg.append(shape("text", { x: middle, y: bottom + 33, "text-anchor": "middle" }, names[0]));
  if (names[1]) {
    const turned = `translate(11 ${(top + bottom) / 2}) rotate(-90)`;
    svg.append(shape("text", { transform: turned, "text-anchor": "middle" }, names[1]));
  }
}

function picture(title, text, svg) {
  const caption = element("figcaption", {}, element("b", {}, title), text);
  return element("figure", { class: "picture" }, caption, svg);
}

// Bars over bins: bounds are one more than heights.
function bars(bounds, heights, names, tip, label, even = null) {
  const place = canvas(210, label);
  const x = scale(bounds[0], bounds[bounds.length - 1], place.left, place.right);
  const most = Math.max(...heights, even ? 1.5 * even : 0) * 1.05 || 1;
  const y = scale(0, most, place.bottom, place.top);
  axes(place, x, y, names);
  heights.forEach((height, k) => {
    const [from, to] = [x(bounds[k]), x(bounds[k + 1])];
    const size = { x: from + 0.5, width: Math.max(to - from - 1, 0.5) };
    const bar = { class: "bar", ...size, y: y(height), height: Math.max(y(0) - y(height), 0) };
    place.svg.append(withTip(shape("rect", bar), tip(k)));
  });
  if (even !== null) place.svg.append(line("ideal", place.left, y(even), place.right, y(even)));
  return place.svg;
}

// Curves of points with marks: each { x, y, pale, tip }.
function curves(list, names, label, { xs, ys, log = false, diagonal = false, format = null, width = 560 }) {
  const place = canvas(210, label, LEFT, width);
  const x = scale(xs[0], xs[1], place.left, place.right);
  const y = scale(ys[0], ys[1], place.bottom, place.top, log);
  axes(place, x, y, names, format);
  if (diagonal) place.svg.append(line("ideal", x(xs[0]), y(ys[0]), x(xs[1]), y(ys[1])));
  for (const curve of list) {
    const points = curve.x.map((at, k) => `${x(at)},${y(curve.y[k])}`).join(" ");
    const pale = curve.pale ? " pale" : "";
    place.svg.append(shape("polyline", { class: `curve${pale}`, points }));
    if (curve.x.length > 60) continue;
    curve.x.forEach((at, k) => {
      const mark = shape("circle", { class: `mark${pale}`, cx: x(at), cy: y(curve.y[k]), r: 3.5 });
      place.svg.append(withTip(mark, curve.tip(k)));
    });
  }
  return place.svg;
}

// Dots with tips that open something: each { x, y, low, high, flagged, tip, open }.
function dots(list, names, label, { logY = false, zero = false, width = 560 }) {
  const place = canvas(210, label, LEFT, width);
  const x = scale(...padded(list.map((d) => d.x)), place.left, place.right);
  const ys = list.flatMap((d) => (d.low > 0 ? [d.y, d.low, d.high ?? d.y] : [d.y]));
  const range = logY ? padded(ys.map(Math.log), 0.04).map(Math.exp) : padded(zero ? [...ys, 0] : ys);
  const y = scale(...range, place.bottom, place.top, logY);
  axes(place, x, y, names);
  if (zero) place.svg.append(line("axis", place.left, y(0), place.right, y(0)));
  for (const dot of [...list].sort((a, b) => (a.flagged || 0) - (b.flagged || 0))) {
    const kind = dot.flagged ? "dot flagged" : "dot";
    if (dot.low > 0 && dot.high) place.svg.append(line("reach", x(dot.x), y(dot.low), x(dot.x), y(dot.high)));
    const made = shape("circle", { class: kind, cx: x(dot.x), cy: y(dot.y), r: list.length > 300 ? 2.5 : 3.5 });
    place.svg.append(withTip(made, dot.tip, dot.open));
  }
  return place.svg;
}

// One coordinate of a task: answers as dots, by weight; interval, estimate, mean and truth.
function strip(name, at, list, format) {
  const reach = [at.lower, at.upper, at.estimate, at.truth, ...list.map((d) => d.x)];
  const levels = Math.min(Math.max(list.length, 3), 12);
  const place = canvas(BOTTOM + 9 * levels + 20, `Answers and estimate of ${name}`, 10, 780);
  const x = scale(...padded(reach), place.left, place.right);
  const { svg, top, bottom } = place;
  const band = { x: x(at.lower), width: Math.max(x(at.upper) - x(at.lower), 1) };
  const interval = `95 % interval: ${format(at.lower)} to ${format(at.upper)}`;
  svg.append(withTip(shape("rect", { class: "band", ...band, y: top, height: bottom - top }), interval));
  axes(place, x, null, [name]);
  for (const kind of ["estimate", "truth"]) {
    if (at[kind] !== null) svg.append(withTip(line(kind, x(at[kind]), top, x(at[kind]), bottom), `${kind}: ${format(at[kind])}`));
  }
  list.forEach((dot, k) => {
    const cy = bottom - 8 - 9 * (k % levels);
    const r = 3 + 4 * Math.sqrt(dot.weight);
    svg.append(withTip(shape("circle", { class: dot.upper ? "dot upper" : "dot", cx: x(dot.x), cy, r }), dot.tip, dot.open));
  });
  const [m, h] = [x(at.mean), bottom];
  const points = `${m},${h - 6} ${m + 5},${h} ${m},${h + 6} ${m - 5},${h}`;
  svg.append(withTip(shape("polygon", { class: "mean", points }), `mean of the answers: ${format(at.mean)}`));
  return svg;
}

// A small picture of a task for a row of a table: the interval, the answers, the estimate, the mean.
function sketch(at, list) {
  const [width, height] = [150, 22];
  const svg = shape("svg", { class: "sketch", viewBox: `0 0 ${width} ${height}`, width, height, "aria-hidden": "true" });
  const x = scale(...padded([at.lower, at.upper, at.estimate, ...list.map((d) => d.x)], 0.04), 4, width - 4);
  if (at.lower !== null) svg.append(shape("rect", { class: "band", x: x(at.lower), width: Math.max(x(at.upper) - x(at.lower), 1), y: 3, height: height - 6, rx: 3 }));
  for (const dot of list) {
    svg.append(shape("circle", { class: dot.upper ? "dot upper" : "dot", cx: x(dot.x), cy: height / 2, r: 2.2 + 2.2 * Math.sqrt(dot.weight) }));
  }
  svg.append(line("estimate", x(at.estimate), 1, x(at.estimate), height - 1));
  return svg;
}

// Boxes or points of an image, y downwards: each { value, weight, tip, open }; over the image itself
// where it is in the file.
function plane(list, estimate, truth, tip, image = null) {
  const corners = image?.size ? [[0, 0, ...image.size]] : [];
  const all = [...list.map((d) => d.value), estimate, ...(truth ? [truth] : []), ...corners];
  const column = (j) => all.flatMap((v) => v.filter((_, k) => k % 2 === j));
  const room = image?.size ? 0 : 0.08;
  const [xs, ys] = [padded(column(0), room), padded(column(1), room)];
  const place = canvas(340, "The answers and the estimate in the image", LEFT, 780);
  const width = place.right - place.left;
  const unit = Math.max((xs[1] - xs[0]) / width, (ys[1] - ys[0]) / (place.bottom - place.top));
  const tall = ((place.bottom - place.top) * unit - (ys[1] - ys[0])) / 2;
  [ys[0], ys[1]] = [ys[0] - tall, ys[1] + tall];
  const spare = (width * unit - (xs[1] - xs[0])) / 2;
  const x = scale(xs[0] - spare, xs[1] + spare, place.left, place.right);
  const y = scale(ys[1], ys[0], place.bottom, place.top);
  axes(place, x, Object.assign((v) => y(v), { low: ys[0], high: ys[1] }), ["x", "y"]);
  if (image?.size) {
    const [wide, high] = image.size;
    const size = { x: x(0), y: y(0), width: x(wide) - x(0), height: y(high) - y(0) };
    place.svg.append(shape("image", { href: image.data, preserveAspectRatio: "none", ...size }));
    place.svg.classList.add("over");
  }
  const draw = (value, kind, extra, r) => {
    if (value.length === 2) return shape("circle", { class: kind, cx: x(value[0]), cy: y(value[1]), r, ...extra });
    const [left, right] = [value[0], value[2]].map(x).sort((a, b) => a - b);
    const [high, low] = [value[1], value[3]].map(y).sort((a, b) => a - b);
    const size = { x: left, y: high, width: right - left, height: low - high };
    return shape("rect", { class: kind, ...size, ...extra });
  };
  for (const d of list) {
    const box = d.value.length === 4;
    const look = box ? { "stroke-opacity": 0.35 + 0.65 * d.weight, "stroke-width": 1 + 1.5 * d.weight } : {};
    place.svg.append(withTip(draw(d.value, box ? "outline" : "dot", look, 3 + 4 * Math.sqrt(d.weight)), d.tip, d.open));
  }
  if (truth) place.svg.append(withTip(draw(truth, "truth", {}, 6), "truth"));
  place.svg.append(withTip(draw(estimate, "estimate", {}, 7), tip));
  return place.svg;
}

// One tip for all pictures; it follows the pointer, and on a phone the finger.
function startTips(tip, dialog) {
  const show = (event) => {
    const text = tips.get(event.target);
    tip.hidden = text === undefined;
    if (tip.hidden) return;
    (dialog.open ? dialog : document.body).append(tip); // above the dialog, not behind it
    tip.textContent = text;
    const size = tip.getBoundingClientRect();
    const left = Math.min(event.clientX + 14, window.innerWidth - size.width - 8);
    const above = event.clientY - size.height - 12;
    tip.style.left = `${Math.max(left, 8)}px`;
    tip.style.top = `${above > 4 ? above : event.clientY + 18}px`;
  };
  for (const kind of ["pointermove", "pointerdown"]) document.addEventListener(kind, show);
  document.addEventListener("scroll", () => { tip.hidden = true; }, true);
  document.addEventListener("click", (event) => {
    const action = actions.get(event.target);
    if (!action) return;
    tip.hidden = true;
    action();
  });
}
