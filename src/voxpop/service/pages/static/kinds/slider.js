// A slider without a thumb until it is touched: a preset one would pull answers towards itself. By keyboard the
// first arrow enters from the end it leaves: → from the low end, ← from the high one; or the value is typed.

import { el, fresh } from "../dom.js";
import { parseNumber, t, written } from "../words.js";
import { inside, limits } from "./number.js";

export function slider(question, content, changed, submit) {
  const [low, high] = [question.min ?? 0, question.max ?? 100];
  const step = question.step || niceStep((high - low) / 200);
  const decimals = decimalsOf(step);
  const [label, hint] = [fresh("label"), fresh("hint")];
  let value = null;

  const thumb = el("span", { class: "thumb", hidden: true });
  const fill = el("span", { class: "fill" });
  const mark = el("span", { class: "truth-mark", hidden: true });
  const track = el("div", {
    class: "slider", role: "slider", tabindex: "0", "aria-labelledby": label, "aria-describedby": hint,
    "aria-valuemin": low, "aria-valuemax": high, "aria-valuenow": low, "aria-valuetext": t("slider_none"),
  }, el("span", { class: "rail" }, fill), mark, thumb);
  const field = el("input", { type: "text", inputmode: "decimal", autocomplete: "off", class: "small-number", enterkeyhint: "send", "aria-label": t("type_instead") });
  const ends = question.labels || [];
  const text = (x) => written(x, { decimals });
  const end = (x, words) => el("span", {}, el("b", {}, text(x)), words ? ` ${words}` : null);
  const node = el("div", { class: "control" },
    el("p", { class: "label", id: label }, t("your_answer"), question.unit ? ` (${question.unit})` : null),
    el("div", { class: "slider-row" }, track, field),
    el("div", { class: "ends slider-ends", "aria-hidden": "true" }, end(low, ends[0]), end(high, ends[1])),
    el("p", { class: "hint", id: hint }, t("slider_touch")));

  const show = () => {
    const share = value === null ? 0 : (value - low) / (high - low);
    thumb.hidden = value === null;
    thumb.style.left = `${100 * share}%`;
    fill.style.width = `${100 * share}%`;
    track.setAttribute("aria-valuenow", value ?? low);
    track.setAttribute("aria-valuetext", value === null ? t("slider_none") : `${text(value)}${question.unit ? ` ${question.unit}` : ""}`);
  };
  const set = (x, typed = false) => {
    value = x === null ? null : Number(Math.min(high, Math.max(low, low + Math.round((x - low) / step) * step)).toFixed(decimals));
    if (!typed) field.value = value === null ? "" : written(value, { grouping: false, decimals });
    field.removeAttribute("aria-invalid");
    show();
    changed();
  };
  const at = (event) => {
    const room = track.getBoundingClientRect();
    set(low + (Math.min(Math.max(event.clientX - room.left, 0), room.width) / room.width) * (high - low));
  };
  let locked = false;
  track.addEventListener("pointerdown", (event) => {
    if (locked || event.button > 0) return;
    track.setPointerCapture(event.pointerId);
    track.focus({ preventScroll: true, focusVisible: false });
    at(event);
  });
  track.addEventListener("pointermove", (event) => { if (!locked && track.hasPointerCapture(event.pointerId)) at(event); });
  track.addEventListener("keydown", (event) => {
    if (event.key === "Enter") {
      event.preventDefault();
      submit();
      return;
    }
    const by = { ArrowRight: step, ArrowUp: step, ArrowLeft: -step, ArrowDown: -step, PageUp: (high - low) / 10, PageDown: (low - high) / 10 }[event.key];
    if (!locked && by !== undefined) set(value === null ? (by > 0 ? low : high) : value + by * (event.shiftKey ? 10 : 1));
    else if (!locked && event.key === "Home") set(low);
    else if (!locked && event.key === "End") set(high);
    else if (!locked && /^[\d-]$/.test(event.key) && !event.ctrlKey && !event.metaKey) {
      field.value = "";
      field.focus(); // the digit goes there
      return;
    } else return;
    event.preventDefault();
  });
  field.addEventListener("input", () => {
    const x = parseNumber(field.value);
    if (x === null || x < low || x > high) {
      value = null;
      show();
      changed();
    } else set(x, true);
  });
  show();
  return {
    node,
    value: () => (value === null ? null : [value]),
    problem() {
      if (value !== null) return null;
      if (!field.value.trim()) return t("slider_touch");
      field.setAttribute("aria-invalid", "true");
      const x = parseNumber(field.value);
      return x === null || inside({ min: low, max: high }, x) ? t("not_a_number", { example: text((low + high) / 2) }) : limits({ min: low, max: high });
    },
    state: () => value,
    restore: (state) => set(state),
    focus: () => track.focus(),
    lock(on) {
      locked = on;
      field.readOnly = on;
      track.setAttribute("aria-disabled", String(on));
    },
    reveal([truth]) {
      mark.hidden = false;
      mark.style.left = `${(100 * (Math.min(Math.max(truth, low), high) - low)) / (high - low)}%`;
    },
  };
}

// How many decimals it takes to write the steps.
function decimalsOf(step) {
  for (let n = 0; n < 12; n++) if (Math.abs(Number(step.toFixed(n)) - step) < 1e-9 * step) return n;
  return 12;
}

// A round step near a small number: 1, 2 or 5 times a power of ten.
function niceStep(raw) {
  const unit = 10 ** Math.floor(Math.log10(raw));
  return [1, 2, 5, 10].map((m) => m * unit).find((s) => s >= raw * 0.999);
}
