// The pages around the tasks: instructions before, and what there is to say when no task comes.

import { copy, el, webAddress } from "./dom.js";
import { markdown } from "./markdown.js";
import { counted, money, t } from "./words.js";

export function opening(campaign, start) {
  const notes = [];
  if (campaign.practice > 0) notes.push(counted("practice_first", campaign.practice));
  if (campaign.price > 0) notes.push(t("pays", { price: money(campaign.price, campaign.currency || "EUR") }));
  const button = el("button", { type: "button", class: "primary", onclick: start }, t("start"));
  const page = el("section", { class: "card-page" },
    el("p", { class: "eyebrow" }, t("before_you_start")),
    el("h1", {}, el("bdi", {}, campaign.title)),
    campaign.instructions ? markdown(campaign.instructions, 2) : el("p", { class: "prose" }, campaign.question.text),
    notes.length ? el("ul", { class: "notes" }, ...notes.map((note) => el("li", {}, note))) : null,
    el("p", { class: "actions" }, button));
  return { page, button };
}

const MTURK = ["https://www.mturk.com", "https://workersandbox.mturk.com"];

function form({ action, fields }) {
  const address = webAddress(action);
  if (!address || !MTURK.includes(new URL(address).origin)) return null;
  const hidden = Object.entries(fields || {}).map(([name, value]) => el("input", { type: "hidden", name, value }));
  return el("form", { method: "post", action: address }, ...hidden, el("button", { class: "primary" }, t("to_mturk")));
}

// How the visit ends for the platform that sent the worker.
function completion(given) {
  const parts = [];
  // Someone with a plain link has nobody to show a code to.
  if (given.code && given.provider !== "link") {
    const code = el("code", { class: "code" }, given.code);
    const button = el("button", { type: "button" }, t("copy"));
    button.addEventListener("click", () => copy(given.code, button, t("copied")));
    parts.push(el("p", { class: "code-line" }, el("span", { class: "soft" }, t("code_is")), " ", code, " ", button));
  }
  const address = given.url && webAddress(given.url);
  if (address) parts.push(el("p", { class: "actions" }, el("a", { class: "primary", href: address, rel: "noreferrer" }, t("to_prolific"))));
  const made = given.form && form(given.form);
  if (made) parts.push(made);
  return parts;
}

export function ending(reason, answered, given) {
  return el("section", { class: `card-page ending ${reason}` },
    el("h1", { tabindex: "-1" }, t(`${reason}_title`)),
    el("p", { class: "prose" }, t(reason)),
    answered > 0 ? el("p", { class: "soft" }, counted("you_gave", answered)) : null,
    ...(given ? completion(given) : []));
}
