// What a campaign pays: its price and budget, changed while it runs.

import { attempt, minorDigits, owner, say } from "./owner.js";

export class Terms {
  constructor(base, form, campaign, changed) {
    Object.assign(this, { base, form, campaign, changed });
    this.unit = 10 ** minorDigits(campaign.currency);
    this.fill();
    // Whoever looks again sees what is true now, not what was typed and left. The click comes before anything is typed.
    form.closest("details").querySelector("summary").addEventListener("click", () => this.fill());
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      attempt(() => this.save());
    });
  }

  fill() {
    const { price, budget } = this.form.elements;
    const told = this.campaign.budget;
    price.value = (this.campaign.rules.price || 0) / this.unit;
    budget.value = told === null || told === undefined ? "" : told / this.unit;
  }

  // An amount in minor units; nothing typed is null. A decimal comma is as good as a point.
  amount(field, word) {
    const text = field.value.trim().replace(",", ".");
    if (!text) return null;
    const found = Math.round(Number(text) * this.unit);
    if (!Number.isFinite(found) || found < 0) throw new RangeError(`${word} is an amount like 0.05, not ${field.value.trim()}.`);
    return found;
  }

  async save() {
    const { price, budget } = this.form.elements;
    let changes;
    try {
      changes = { budget: this.amount(budget, "The budget"), rules: { price: this.amount(price, "The price") ?? 0 } };
    } catch (error) {
      say(error.message, 8000);
      return;
    }
    const changed = await owner("PATCH", this.base, changes);
    Object.assign(this.campaign, { budget: changed.budget, rules: changed.rules });
    this.form.closest("details").open = false;
    this.changed();
    say("Changed. The price applies to tasks that workers get from now on.");
  }
}
