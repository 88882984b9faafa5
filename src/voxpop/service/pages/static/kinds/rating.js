// A rating: one button a whole value, words at both ends.

import { el, fresh } from "../dom.js";
import { t, written } from "../words.js";

export function rating(question, content, changed) {
  const [low, high] = [question.min ?? 1, question.max ?? 5];
  const name = fresh("rating");
  const label = fresh("label");
  const values = Array.from({ length: Math.round(high - low) + 1 }, (_, k) => low + k);
  const ends = question.labels || [];
  const inputs = values.map((x, k) => {
    const end = k === 0 ? ends[0] : k === values.length - 1 ? ends[1] : null;
    return el("input", { type: "radio", name, value: String(x), "aria-label": end ? `${written(x)}, ${end}` : written(x), onchange: changed });
  });
  const buttons = inputs.map((input, k) => el("label", { class: "choice" }, input, el("span", { "aria-hidden": "true" }, written(values[k]))));
  const group = el("div", { class: "choices", role: "radiogroup", "aria-labelledby": label }, buttons);
  group.dataset.many = values.length > 11 ? "yes" : "no";
  const node = el("div", { class: "control" },
    el("p", { class: "label", id: label }, t("your_answer"), question.unit ? ` (${question.unit})` : null),
    group,
    ends.length ? el("div", { class: "ends", "aria-hidden": "true" }, el("span", {}, ends[0]), el("span", {}, ends[1])) : null);
  const chosen = () => inputs.find((input) => input.checked);
  const choose = (x) => {
    const found = inputs[values.indexOf(x)];
    if (!found || found.disabled) return;
    found.checked = true;
    found.focus();
    changed();
  };
  // A digit chooses; two soon after each other make a number of two.
  let typed = "";
  let at = 0;
  group.addEventListener("keydown", (event) => {
    if (!/^\d$/.test(event.key) || event.ctrlKey || event.metaKey || event.altKey) return;
    typed = event.timeStamp - at < 700 ? typed + event.key : event.key;
    at = event.timeStamp;
    choose(values.includes(Number(typed)) ? Number(typed) : Number(event.key));
  });
  return {
    node,
    value: () => (chosen() ? [Number(chosen().value)] : null),
    problem: () => (chosen() ? null : t("need_value")),
    state: () => (chosen() ? Number(chosen().value) : null),
    restore(state) {
      const found = inputs[values.indexOf(state)];
      if (found) found.checked = true;
      changed();
    },
    focus: () => (chosen() || inputs[0]).focus(),
    lock: (on) => inputs.forEach((input) => { input.disabled = on; }),
    reveal: ([truth]) => buttons[values.indexOf(Math.round(truth))]?.classList.add("truth"),
  };
}
