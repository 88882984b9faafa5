// A picture to look at closely: wheel, pinch, drag and keys zoom and move it. Marks are drawn over it in
// coordinates of the screen, so that handles keep their size; their values are pixels of the picture.

import { el, pictureAddress, svg } from "./dom.js";
import { t } from "./words.js";

const MOST = 40; // screen pixels a picture pixel

export class Stage {
  // `marks` draws and answers: { press(at, event) → { move(at), end(at, moved) } | null, draw(stage), key(event) }.
  constructor(content, label, marks = null) {
    this.marks = marks;
    [this.width, this.height] = [content.width || 0, content.height || 0];
    [this.scale, this.left, this.top] = [1, 0, 0];
    this.image = el("img", { alt: label, draggable: "false", referrerpolicy: "no-referrer", decoding: "async" });
    this.layer = svg("svg", { class: "marks", "aria-hidden": "true" });
    this.view = el("div", { class: "view", ...(marks ? { tabindex: "0", role: "application", "aria-label": marks.label } : {}) }, this.image, this.layer);
    const button = (text, key, action) => el("button", { type: "button", "aria-label": t(key), title: t(key), onclick: action }, text);
    this.buttons = el("div", { class: "zoom" },
      button("+", "zoom_in", () => this.zoom(1.5)), button("−", "zoom_out", () => this.zoom(1 / 1.5)), button("⤢", "zoom_fit", () => this.fit()));
    this.node = el("div", { class: "stage" }, this.view, this.buttons);
    this.pointers = new Map();
    this.action = null;
    this.listen();
    this.ready = new Promise((resolve) => { this.loaded = resolve; });
    this.load(content.image);
  }

  load(source) {
    const address = source ? pictureAddress(source) : null;
    this.image.addEventListener("load", () => {
      this.width ||= this.image.naturalWidth || 300;
      this.height ||= this.image.naturalHeight || 200;
      this.node.classList.add("ready");
      this.fit();
      this.loaded();
    });
    this.image.addEventListener("error", () => {
      const again = el("button", { type: "button" }, t("try_again"));
      const note = el("p", { class: "warning" }, t("image_failed"), " ", again);
      again.addEventListener("click", () => {
        note.replaceWith(this.view);
        this.image.src = address;
      });
      this.view.replaceWith(note);
      this.loaded();
    });
    this.image.src = address || "data:,";
    new ResizeObserver(() => this.resized()).observe(this.node);
  }

  // The room for the picture follows from its shape and the window.
  resized() {
    const wide = this.node.clientWidth;
    if (!this.width || !wide || wide === this.was) return;
    const whole = Math.abs(this.scale - this.fitted) < 1e-9 || this.fitted === undefined;
    this.was = wide;
    if (whole) this.fit();
    else this.draw();
  }

  fit() {
    if (!this.width) return;
    const wide = this.node.clientWidth || 300;
    const most = Math.max(0.62 * window.innerHeight, 220);
    const high = Math.min((wide * this.height) / this.width, most);
    this.view.style.height = `${Math.max(high, 140)}px`;
    const [w, h] = [this.view.clientWidth, this.view.clientHeight];
    this.fitted = Math.min(w / this.width, h / this.height);
    this.scale = this.fitted;
    this.left = (w - this.width * this.scale) / 2;
    this.top = (h - this.height * this.scale) / 2;
    this.image.style.width = `${this.width}px`;
    this.image.style.height = `${this.height}px`;
    this.draw();
  }

  // Zoom about a point of the view, by default its middle.
  zoom(factor, x = this.view.clientWidth / 2, y = this.view.clientHeight / 2) {
    const to = Math.min(Math.max(this.scale * factor, this.fitted), Math.max(MOST, this.fitted));
    const by = to / this.scale;
    this.left = x - (x - this.left) * by;
    this.top = y - (y - this.top) * by;
    this.scale = to;
    this.draw();
  }

  pan(dx, dy) {
    this.left += dx;
    this.top += dy;
    this.draw();
  }

  get zoomed() { return this.scale > this.fitted * 1.001; }

  // Keep the picture in view, and draw it with its marks.
  draw() {
    const [w, h] = [this.view.clientWidth, this.view.clientHeight];
    const keep = (at, size, room) => (size <= room ? (room - size) / 2 : Math.min(0, Math.max(room - size, at)));
    this.left = keep(this.left, this.width * this.scale, w);
    this.top = keep(this.top, this.height * this.scale, h);
    this.image.style.transform = `translate(${this.left}px, ${this.top}px) scale(${this.scale})`;
    this.image.classList.toggle("pixels", this.scale > 3);
    this.layer.setAttribute("viewBox", `0 0 ${w} ${h}`);
    this.marks?.draw(this);
  }

  toScreen([x, y]) { return [this.left + x * this.scale, this.top + y * this.scale]; }

  // Pixels of the picture under a point of the window, inside the picture, as exact as the eye can tell.
  toPicture(clientX, clientY) {
    const room = this.view.getBoundingClientRect();
    const fine = this.scale > 4 ? 10 : 1;
    const at = (value, most) => Math.round(Math.min(Math.max(value, 0), most) * fine) / fine;
    return [at((clientX - room.left - this.left) / this.scale, this.width), at((clientY - room.top - this.top) / this.scale, this.height)];
  }

  listen() {
    const { view } = this;
    view.addEventListener("wheel", (event) => {
      if (!this.zoomed && event.deltaY > 0) return; // the page scrolls
      event.preventDefault();
      const room = view.getBoundingClientRect();
      const turned = event.deltaY * (event.deltaMode === 1 ? 16 : 1) * (event.ctrlKey ? 6 : 1);
      this.zoom(Math.exp(-turned * 0.0016), event.clientX - room.left, event.clientY - room.top);
    }, { passive: false });
    view.addEventListener("pointerdown", (event) => this.down(event));
    view.addEventListener("pointermove", (event) => this.moved(event));
    for (const kind of ["pointerup", "pointercancel"]) view.addEventListener(kind, (event) => this.up(event));
    view.addEventListener("keydown", (event) => this.key(event));
    view.addEventListener("keyup", (event) => { if (event.key === " ") this.space = false; });
    view.addEventListener("blur", () => { this.space = false; });
  }

  down(event) {
    if (event.button > 1 || !this.width) return;
    if (this.marks) this.view.focus({ preventScroll: true, focusVisible: false });
    event.preventDefault();
    this.view.setPointerCapture(event.pointerId);
    this.pointers.set(event.pointerId, [event.clientX, event.clientY]);
    if (this.pointers.size > 1) {
      this.action?.cancel?.(); // a second finger: this is a pinch
      this.action = null;
      return;
    }
    const wantsPan = event.button === 1 || this.space;
    this.from = [event.clientX, event.clientY];
    this.far = false;
    this.action = (!wantsPan && this.marks?.press(this, event)) || { move: (_, dx, dy) => this.pan(dx, dy) };
  }

  moved(event) {
    const before = this.pointers.get(event.pointerId);
    if (!before) {
      this.marks?.hover?.(this, event);
      return;
    }
    const now = [event.clientX, event.clientY];
    if (this.pointers.size === 2) this.pinch(event.pointerId, now);
    this.pointers.set(event.pointerId, now);
    if (this.pointers.size > 1 || !this.action) return;
    this.far ||= Math.hypot(now[0] - this.from[0], now[1] - this.from[1]) > (event.pointerType === "touch" ? 8 : 3);
    if (this.far) this.action.move(this.toPicture(...now), now[0] - before[0], now[1] - before[1]);
  }

  pinch(id, now) {
    const before = this.pointers.get(id);
    const [, other] = [...this.pointers].find(([key]) => key !== id);
    const room = this.view.getBoundingClientRect();
    const apart = (a) => Math.max(Math.hypot(a[0] - other[0], a[1] - other[1]), 1);
    this.pan((now[0] - before[0]) / 2, (now[1] - before[1]) / 2);
    this.zoom(apart(now) / apart(before), (now[0] + other[0]) / 2 - room.left, (now[1] + other[1]) / 2 - room.top);
  }

  up(event) {
    if (!this.pointers.delete(event.pointerId)) return;
    const { action } = this;
    if (this.pointers.size) return;
    this.action = null;
    if (event.type === "pointercancel") action?.cancel?.();
    else action?.end?.(this.toPicture(event.clientX, event.clientY), this.far);
  }

  key(event) {
    if (event.key === " ") {
      event.preventDefault();
      this.space = true;
    } else if (event.key === "+" || event.key === "=") this.zoom(1.25);
    else if (event.key === "-" || event.key === "−") this.zoom(0.8);
    else if (event.key === "0") this.fit();
    else if (this.marks?.key(this, event)) event.preventDefault();
  }

  // Bring a point of the picture into view.
  reveal([x, y]) {
    const [sx, sy] = this.toScreen([x, y]);
    const [w, h] = [this.view.clientWidth, this.view.clientHeight];
    const edge = 24;
    const over = (at, room) => (at < edge ? edge - at : at > room - edge ? room - edge - at : 0);
    if (this.zoomed) this.pan(over(sx, w), over(sy, h));
  }
}
