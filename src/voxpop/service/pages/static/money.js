// Money: what is spent, promised and left, and whether it will do.

import { el } from "./dom.js";
import { count, money } from "./owner.js";

function part(kind, share) {
  const made = el("span", { class: kind });
  made.style.width = `${Math.max(0, Math.min(100 * share, 100))}%`;
  return made;
}

function figure(word, text, kind) {
  return el("div", { class: `sum ${kind}` }, el("dt", {}, word), el("dd", {}, text));
}

// Whether what is left pays for what is still needed.
function forecast({ price, currency, left }, needed, rule) {
  if (!rule) return "Without a stop rule no task is ever done: answers are bought until the budget is spent.";
  if (!Number.isFinite(needed)) return "The number of answers still needed is known after about two answers per task.";
  if (needed < 0.5) return "Every task meets the stop rule: no more answers are needed.";
  const cost = needed * price;
  const text = `About ${count(Math.round(needed))} more answers bring every task to the stop rule${price > 0 ? `: ${money(Math.round(cost), currency)}` : ""}.`;
  if (left === null || !(price > 0)) return text;
  return cost <= left ? `${text} The budget is enough.` : `${text} The budget left pays for ${count(Math.floor(left / price))}.`;
}

export function purse(campaign, summary) {
  const rules = campaign.rules || {};
  const currency = campaign.currency || rules.currency || "EUR";
  const price = rules.price || 0;
  const { budget = null, spent = 0, reserved = 0 } = campaign;
  const left = budget === null ? null : Math.max(budget - spent - reserved, 0);
  const rule = Boolean(rules.half_width || rules.answers_per_task);
  const said = el("p", { class: "forecast" }, forecast({ price, currency, left }, summary.answers_to_finish, rule));
  if (!price && !spent && budget === null) return [el("p", { class: "soft" }, "Answers cost nothing here: the campaign has no price and no budget."), said];
  const sums = el("dl", { class: "sums" },
    figure("Spent", money(spent, currency), "spent"), figure("Reserved for tasks being answered", money(reserved, currency), "reserved"),
    figure("Left", left === null ? "no limit" : money(left, currency), "left"), figure("Price of an answer", money(price, currency), "price"));
  const bar = budget > 0 ? [el("div", { class: "purse-bar", "aria-hidden": "true" }, part("spent", spent / budget), part("reserved", reserved / budget))] : [];
  return [...bar, sums, said];
}
