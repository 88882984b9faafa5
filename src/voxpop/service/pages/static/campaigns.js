// The list of campaigns.

import { el } from "./dom.js";
import { attempt, count, money, pill, rowsOf } from "./owner.js";

const list = document.getElementById("list");

function card(one) {
  const share = one.n_tasks ? (100 * one.n_done) / one.n_tasks : 0;
  const bar = el("span", { class: "done" });
  bar.style.width = `${share}%`;
  const facts = [`${count(one.n_done)} of ${count(one.n_tasks)} tasks done`, `${count(one.n_answers)} answers`];
  if (one.spent > 0 || one.budget) facts.push(one.budget ? `${money(one.spent, one.currency)} of ${money(one.budget, one.currency)}` : `${money(one.spent, one.currency)} spent`);
  return el("li", { class: "campaign" },
    el("h2", {}, el("a", { href: `/owner/${encodeURIComponent(one.slug)}` }, el("bdi", {}, one.title || one.slug)), " ", pill(one.state)),
    el("div", { class: "thin", "aria-hidden": "true" }, bar),
    el("p", { class: "soft" }, facts.join(" · ")));
}

const found = await attempt(() => rowsOf("/campaigns"));
if (found === null) list.replaceChildren(el("p", { class: "warning" }, "The campaigns cannot be shown. Load the page again."));
else if (found.rows.length) list.replaceChildren(el("ul", { class: "campaigns" }, ...found.rows.map(card)));
else {
  list.replaceChildren(el("section", { class: "empty" },
    el("h2", {}, "Ask your first question"),
    el("p", {}, "A campaign asks many people the same question about many things, buys answers where they help most, and stops when the estimates are accurate enough."),
    el("p", { class: "actions" }, el("a", { class: "primary", href: "/new" }, "Make a campaign"), el("a", { href: "/new#example" }, "or start with a filled-in example"))));
}
document.documentElement.dataset.ready = "yes";
