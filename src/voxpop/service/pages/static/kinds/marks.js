// A point or one box on a picture: by mouse, finger or keys, or as numbers in the fields beside it.

import { el, fresh, svg } from "../dom.js";
import { Stage } from "../stage.js";
import { parseNumber, t, written } from "../words.js";

const HANDLE = 22; // how far from a handle a finger may land, in screen pixels

function crosshair(at, kind) {
  const [x, y] = at;
  const group = svg("g", { class: `cross ${kind}`, transform: `translate(${x} ${y})` });
  for (const layer of ["halo", "core"]) {
    group.append(
      svg("circle", { class: layer, r: 9 }),
      svg("path", { class: layer, d: "M-15 0H-4M4 0H15M0-15V-4M0 4V15" }),
    );
  }
  return group;
}

function frame([x, y, width, height], stage, kind) {
  const [left, top] = stage.toScreen([x, y]);
  const size = { x: left, y: top, width: width * stage.scale, height: height * stage.scale };
  const group = svg("g", { class: `frame ${kind}` });
  group.append(svg("rect", { class: "halo", ...size }), svg("rect", { class: "core", ...size }));
  return group;
}

// What point and box share: a stage, fields for the coordinates, the draft, the truth.
function marked({ names, label, help, shape }, question, content, changed, submit) {
  let value = null;
  let locked = false;
  let truth = null;
  const hint = fresh("hint");
  const set = (to, fromFields = false) => {
    value = to;
    if (!fromFields) fields.forEach((field, k) => { field.value = value ? written(value[k], { grouping: false, decimals: 1 }) : ""; });
    stage.draw();
    changed();
  };
  const draw = () => {
    const parts = [];
    if (truth) parts.push(shape.picture(truth, stage, "truth"));
    if (value) parts.push(shape.picture(value, stage, truth ? "given" : "mine"));
    if (value && !locked && shape.handles) parts.push(...shape.handles(value, stage));
    stage.layer.replaceChildren(...parts);
  };
  const marks = {
    label,
    draw,
    hover(room, event) { room.view.style.cursor = locked ? "default" : shape.cursor(value, room, event); },
    press: (room, event) => (locked ? null : shape.press(value, room, event, set)),
    key(room, event) {
      if (event.key === "Enter") {
        submit();
        return true;
      }
      if (locked) return false;
      if ((event.key === "Delete" || event.key === "Backspace") && value) {
        set(null);
        return true;
      }
      const step = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
      if (!step) return false;
      const size = event.shiftKey ? 10 : 1;
      set(value ? shape.nudge(value, step.map((x) => x * size), event.ctrlKey || event.altKey, room) : shape.first(room));
      room.reveal(shape.corner(value, event.ctrlKey || event.altKey));
      return true;
    },
  };
  const stage = new Stage(content, t("image_of_task"), marks);
  stage.view.setAttribute("aria-describedby", hint);
  const fields = names.map((name) => el("input", { type: "text", inputmode: "decimal", autocomplete: "off", class: "small-number", enterkeyhint: "send", "aria-label": `${t(name)}, ${t("pixels")}` }));
  const typed = () => {
    const numbers = fields.map((field) => parseNumber(field.value));
    const whole = numbers.every((x) => x !== null) && shape.valid(numbers, stage);
    set(whole ? numbers : null, true);
  };
  fields.forEach((field, k) => {
    field.addEventListener("input", typed);
    field.addEventListener("keydown", (event) => {
      const by = { ArrowUp: 1, ArrowDown: -1 }[event.key];
      const x = parseNumber(field.value);
      if (!by || x === null || locked) return;
      event.preventDefault();
      field.value = written(x + by * (event.shiftKey ? 10 : 1), { grouping: false, decimals: 1 });
      typed();
    });
    field.dataset.name = names[k];
  });
  const clear = el("button", { type: "button", class: "quiet", onclick: () => { if (!locked) set(null); } }, t("clear"));
  stage.buttons.append(clear);
  const rows = names.map((name, k) => el("label", { class: "coordinate" }, el("span", { "aria-hidden": "true" }, t(name)), fields[k]));
  const side = el("div", { class: "side" },
    el("div", { class: "coordinates", role: "group", "aria-label": `${t("your_answer")}, ${t("pixels")}` }, ...rows),
    el("p", { class: "hint", id: hint }, help, " ", t("zoom_help")));
  const node = el("div", { class: "control image-control" }, stage.node, side);
  return {
    node,
    side,
    value: () => value && [...value],
    problem: () => (value ? null : t("need_value")),
    state: () => value,
    restore: (state) => { stage.ready.then(() => set(state)); },
    focus: () => stage.view.focus({ preventScroll: true }),
    lock(on) {
      locked = on;
      clear.disabled = on;
      fields.forEach((field) => { field.readOnly = on; });
      stage.draw();
    },
    reveal(given) {
      truth = given;
      stage.fit();
    },
  };
}

const within = (x, most) => Math.min(Math.max(x, 0), most);

const POINT = {
  picture: (value, stage, kind) => crosshair(stage.toScreen(value), kind),
  cursor: (value, stage, event) => (value && near(stage, value, event) ? "grab" : "crosshair"),
  // A tap sets the point; a drag that begins at the point moves it; any other drag moves the picture.
  press(value, stage, event, set) {
    if (value && near(stage, value, event)) {
      const start = stage.toPicture(event.clientX, event.clientY);
      const off = [value[0] - start[0], value[1] - start[1]];
      return {
        move: (at) => set([within(at[0] + off[0], stage.width), within(at[1] + off[1], stage.height)]),
        end: (at, moved) => { if (!moved) set(at); },
        cancel: () => set(value),
      };
    }
    return { move: (_, dx, dy) => stage.pan(dx, dy), end: (at, moved) => { if (!moved) set(at); } };
  },
  first: (stage) => [Math.round(stage.width / 2), Math.round(stage.height / 2)],
  nudge: (value, [dx, dy], _, stage) => [within(value[0] + dx, stage.width), within(value[1] + dy, stage.height)],
  corner: (value) => value,
  valid: ([x, y], stage) => x >= 0 && y >= 0 && x <= stage.width && y <= stage.height,
};

function near(stage, at, event) {
  const room = stage.view.getBoundingClientRect();
  const [x, y] = stage.toScreen(at);
  return Math.hypot(event.clientX - room.left - x, event.clientY - room.top - y) < HANDLE;
}

// Where on a box the pointer is: [-1 | 0 | 1, -1 | 0 | 1] for its edges and corners, [0, 0] inside, null outside.
function grip([x, y, width, height], stage, event) {
  const room = stage.view.getBoundingClientRect();
  const [left, top] = stage.toScreen([x, y]);
  const [right, bottom] = stage.toScreen([x + width, y + height]);
  const [px, py] = [event.clientX - room.left, event.clientY - room.top];
  const reach = Math.min(event.pointerType === "touch" ? HANDLE : 10, Math.max((right - left) / 3, 6), Math.max((bottom - top) / 3, 6));
  const out = event.pointerType === "touch" ? HANDLE : 10;
  if (px < left - out || px > right + out || py < top - out || py > bottom + out) return null;
  const side = (at, from, to) => (at < from + reach ? -1 : at > to - reach ? 1 : 0);
  return [side(px, left, right), side(py, top, bottom)];
}

const between = (a, b) => [Math.min(a[0], b[0]), Math.min(a[1], b[1]), Math.abs(a[0] - b[0]), Math.abs(a[1] - b[1])];
const thick = (box) => box[2] > 0 && box[3] > 0;

const BOX = {
  picture: frame,
  handles: ([x, y, width, height], stage) => [0, 0.5, 1].flatMap((i) => [0, 0.5, 1].filter((j) => i !== 0.5 || j !== 0.5).map((j) => {
    const [cx, cy] = stage.toScreen([x + i * width, y + j * height]);
    return svg("rect", { class: "handle", x: cx - 5, y: cy - 5, width: 10, height: 10, rx: 2 });
  })),
  cursor(value, stage, event) {
    const at = value && grip(value, stage, event);
    if (!at) return value && stage.zoomed ? "grab" : "crosshair";
    if (!at[0] && !at[1]) return "move";
    return at[0] && at[1] ? (at[0] === at[1] ? "nwse-resize" : "nesw-resize") : at[0] ? "ew-resize" : "ns-resize";
  },
  // A drag on edges changes them, inside it moves the box; outside it draws a new one, or moves a zoomed picture.
  press(value, stage, event, set) {
    const start = stage.toPicture(event.clientX, event.clientY);
    const at = value && grip(value, stage, event);
    const cancel = () => set(value);
    if (!at) {
      if (value && stage.zoomed) return null;
      return { move: (to) => { const box = between(start, to); if (thick(box)) set(box); }, cancel };
    }
    const [x, y, width, height] = value;
    if (!at[0] && !at[1]) {
      return {
        move: (to) => set([within(x + to[0] - start[0], stage.width - width), within(y + to[1] - start[1], stage.height - height), width, height]),
        cancel,
      };
    }
    const far = [at[0] < 0 ? x + width : x, at[1] < 0 ? y + height : y];
    return {
      move(to) {
        const box = between(far, [at[0] ? to[0] : x + width, at[1] ? to[1] : y + height]);
        const made = [at[0] ? box[0] : x, at[1] ? box[1] : y, at[0] ? box[2] : width, at[1] ? box[3] : height];
        if (thick(made)) set(made);
      },
      cancel,
    };
  },
  first: (stage) => [0.25, 0.25, 0.5, 0.5].map((share, k) => Math.max(Math.round(share * (k % 2 ? stage.height : stage.width)), 1)),
  nudge([x, y, width, height], [dx, dy], resize, stage) {
    if (resize) return [x, y, Math.min(Math.max(width + dx, 1), stage.width - x), Math.min(Math.max(height + dy, 1), stage.height - y)];
    return [within(x + dx, stage.width - width), within(y + dy, stage.height - height), width, height];
  },
  corner: ([x, y, width, height], resize) => (resize ? [x + width, y + height] : [x + width / 2, y + height / 2]),
  valid: ([x, y, width, height], stage) => x >= 0 && y >= 0 && width > 0 && height > 0 && x + width <= stage.width + 1e-9 && y + height <= stage.height + 1e-9,
};

export const point = (...rest) => marked({ names: ["x", "y"], label: t("point_label"), help: t("point_help"), shape: POINT }, ...rest);
export const box = (...rest) => marked({ names: ["x", "y", "width", "height"], label: t("box_label"), help: t("box_help"), shape: BOX }, ...rest);
