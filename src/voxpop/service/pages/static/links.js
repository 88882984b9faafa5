// The links of a campaign: made, shown once, listed, and revoked when one has leaked. A platform's link comes with
// what the platform needs to take its workers back.

import { copy, el } from "./dom.js";
import { attempt, owner, say } from "./owner.js";

const CODES = [["completed", "Completed"], ["screened_out", "Screened out"], ["nothing_left", "Nothing left to do"]];
const USES = {
  prolific: "Enter it as the URL of your study, and choose “I'll use URL parameters”.",
  mturk: "Enter it as the ExternalURL of your HIT's ExternalQuestion.",
};
const WORDS = { invite: "Workers may answer", owner: "Another owner", label_studio: "Label Studio" };
const day = (seconds) => new Date(1000 * seconds).toLocaleDateString("en", { dateStyle: "medium" });

const control = (word, act, look = "") => el("button", { type: "button", class: look, onclick: () => attempt(act) }, word);

export class Links {
  constructor(base, room, list, campaign) {
    Object.assign(this, { base, room, list, campaign });
    this.offer();
    list.closest("details").addEventListener("toggle", (event) => { if (event.target.open) attempt(() => this.refresh()); });
  }

  // A link for each way workers come; none is shown twice, since only its hash is stored.
  offer() {
    this.room.replaceChildren(control("Make an invite link", () => this.make("invite"), "primary"), control("for Prolific", () => this.prolific()), control("for MTurk", () => this.mturk()));
  }

  // Prolific pays whoever comes back with a code of the study.
  prolific() {
    const known = this.campaign.rules.prolific || {};
    const fields = CODES.map(([name, word]) => el("label", {}, `${word} `, el("input", { type: "text", name, value: known[name] || "", maxlength: 100, autocomplete: "off" })));
    const form = el("form", { class: "terms" }, el("p", { class: "soft" }, "The completion codes of your study. Where you leave one empty, workers get that for “Completed”."), ...fields,
      el("button", { class: "primary" }, "Make the link"), this.cancel());
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      const codes = Object.fromEntries(CODES.map(([name]) => [name, form.elements[name].value.trim()]).filter(([, code]) => code));
      if (codes.completed) attempt(() => this.make("prolific", codes));
      else say("Give the code for “Completed”: Prolific pays nobody without it.", 8000);
    });
    this.room.replaceChildren(form);
    form.elements.completed.focus();
  }

  // MTurk shows the page in a frame, and one of two hosts takes assignments back.
  mturk() {
    this.room.replaceChildren(el("p", { class: "soft" }, "Where is the HIT?"), control("Real work", () => this.make("mturk", { sandbox: false }), "primary"), control("The sandbox", () => this.make("mturk", { sandbox: true })), this.cancel());
    this.room.querySelector("button").focus();
  }

  cancel() { return control("Cancel", () => this.offer(), "quiet"); }

  async make(kind, rule = null) {
    if (rule) this.campaign.rules = (await owner("PATCH", this.base, { rules: { [kind]: rule } })).rules;
    const { url, id } = await owner("POST", `${this.base}/links`, { kind });
    const field = el("input", { type: "text", readonly: true, class: "link-field", "aria-label": "Invite link", onfocus: (event) => event.target.select() });
    field.value = url;
    const button = el("button", { type: "button", class: "primary" }, "Copy");
    button.addEventListener("click", () => copy(url, button, "Copied"));
    this.newest = id;
    // The platform fills in who comes: without it the link opens nothing.
    const use = USES[kind] ? [] : [el("a", { class: "aside", href: url, target: "_blank", rel: "noopener" }, "Try it as a worker")];
    this.room.replaceChildren(field, button, ...use, control("Make another link", () => this.offer(), "quiet"));
    if (USES[kind]) this.room.append(el("p", { class: "soft" }, USES[kind]));
    button.focus();
    if (this.list.closest("details").open) await this.refresh();
  }

  async refresh() {
    const { rows } = await owner("GET", `${this.base}/links?limit=2000`);
    const none = rows.length ? [] : [el("li", { class: "soft" }, "No link opens this campaign.")];
    this.list.replaceChildren(...rows.map((row) => this.item(row)), ...none);
  }

  item(row) {
    const until = row.expires === null ? "" : `, until ${day(row.expires)}`;
    const newest = row.id === this.newest ? " (the one above)" : "";
    const short = row.id.slice(0, 8);
    return el("li", {}, el("span", {}, `${WORDS[row.kind]}${until}${newest} `, el("code", {}, short), " ", el("bdi", { class: "soft" }, row.note)),
      el("button", { type: "button", "aria-label": `Revoke link ${short}`, onclick: () => attempt(() => this.revoke(row)) }, "Revoke"));
  }

  async revoke(row) {
    await owner("DELETE", `${this.base}/links/${row.id}`);
    if (row.id === this.newest) this.offer();
    say("The link opens nothing any more. Workers who came in by it stay.");
    await this.refresh();
  }
}
