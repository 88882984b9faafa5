// Dialogs of the worker page: the instructions again, why a task is skipped, what is wrong with it.

import { el, fresh } from "./dom.js";
import { markdown } from "./markdown.js";
import { t } from "./words.js";

const dialog = document.getElementById("dialog");

function open(title, ...parts) {
  const close = el("button", { type: "button", onclick: () => dialog.close() }, t("close"));
  dialog.replaceChildren(el("div", { class: "bar-top" }, el("h2", { id: "dialog-title" }, title), close), ...parts);
  dialog.showModal();
}

dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });

export function showInstructions(text) {
  open(t("instructions"), markdown(text));
}

// Ask why, and resolve to the reason; null if the worker changes their mind.
export function askReason() {
  return new Promise((resolve) => {
    let chosen = null;
    const choose = (reason) => {
      chosen = reason;
      dialog.close();
    };
    const reasons = ["unsure", "unclear", "broken", "other"];
    open(t("skip_why"), el("div", { class: "reasons" }, ...reasons.map((reason) => el("button", { type: "button", onclick: () => choose(reason) }, t(`skip_${reason}`)))));
    dialog.addEventListener("close", () => resolve(chosen), { once: true });
  });
}

// Ask what is wrong, and resolve to the text; null if the worker changes their mind.
export function askReport() {
  return new Promise((resolve) => {
    let sent = null;
    const id = fresh("report");
    const field = el("textarea", { id, rows: "4", maxlength: "2000", required: true, "aria-label": t("report_what") });
    const form = el("form", { class: "report" }, field, el("button", { class: "primary" }, t("report_send")));
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      sent = field.value.trim() || null;
      if (sent) dialog.close();
    });
    open(t("report_what"), form);
    field.focus();
    dialog.addEventListener("close", () => resolve(sent), { once: true });
  });
}
