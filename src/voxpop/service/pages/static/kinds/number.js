// A number in a text field: any decimal sign, and what was understood is shown.

import { el, fresh } from "../dom.js";
import { parseNumber, t, written } from "../words.js";

// What a value must be, in words; null where anything goes.
export function limits({ min, max, step }) {
  const [low, high] = [min, max].map((x) => (x === undefined || x === null ? null : written(x)));
  let text = null;
  if (low !== null && high !== null) text = t("between", { low, high });
  else if (low !== null) text = t("at_least", { low });
  else if (high !== null) text = t("at_most", { high });
  if (step) text = [text, t("in_steps", { step: written(step) })].filter(Boolean).join(" ");
  return text;
}

// Whether a value keeps to the limits; steps count from the minimum.
export function inside({ min, max, step }, x) {
  if ((min ?? -Infinity) > x || (max ?? Infinity) < x) return false;
  if (!step) return true;
  const steps = (x - (min ?? 0)) / step;
  return Math.abs(steps - Math.round(steps)) < 1e-6;
}

export function number(question, content, changed) {
  const [label, hint, echo] = [fresh("label"), fresh("hint"), fresh("echo")];
  const field = el("input", {
    type: "text", inputmode: (question.min ?? -1) >= 0 ? "decimal" : "text", autocomplete: "off", autocapitalize: "off", spellcheck: "false",
    enterkeyhint: "send", class: "number", "aria-labelledby": label, "aria-describedby": `${hint} ${echo}`,
  });
  const read = el("p", { class: "echo", id: echo, "aria-live": "polite" });
  const text = limits(question);
  const node = el("div", { class: "control" },
    el("p", { class: "label", id: label }, t("your_answer"), question.unit ? el("span", { class: "offscreen" }, ` ${t("number_in", { unit: question.unit })}`) : null),
    el("div", { class: "number-row" }, field, question.unit ? el("span", { class: "unit", "aria-hidden": "true" }, question.unit) : null),
    el("p", { class: "hint", id: hint }, text || ""), read);
  const value = () => {
    const x = parseNumber(field.value);
    return x === null ? null : [x];
  };
  const refresh = () => {
    const found = value();
    const puzzling = found !== null && /[.,\s'’]/.test(field.value.trim());
    read.textContent = puzzling ? t("read_as", { value: written(found[0], { grouping: false, decimals: 12 }) }) : "";
    field.removeAttribute("aria-invalid");
    changed();
  };
  field.addEventListener("input", refresh);
  return {
    node,
    value,
    problem() {
      if (!field.value.trim()) return t("need_value");
      const found = value();
      const wrong = found === null ? t("not_a_number", { example: written(question.max && question.max < 10 ? 1.5 : 12.5) }) : inside(question, found[0]) ? null : text;
      if (wrong) field.setAttribute("aria-invalid", "true");
      return wrong;
    },
    state: () => field.value,
    restore(state) {
      field.value = state;
      refresh();
    },
    focus() {
      field.focus();
      field.select();
    },
    lock: (on) => { field.readOnly = on; },
    reveal() {},
  };
}
