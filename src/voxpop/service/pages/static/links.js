// The links of a campaign: made, shown once, listed, and revoked when one has leaked.

import { copy, el } from "./dom.js";
import { attempt, owner, say } from "./owner.js";

const KINDS = [["invite", "Make an invite link", "primary"], ["prolific", "for Prolific", ""], ["mturk", "for MTurk", ""]];
const WORDS = { invite: "Workers may answer", owner: "Another owner", label_studio: "Label Studio" };
const day = (seconds) => new Date(1000 * seconds).toLocaleDateString("en", { dateStyle: "medium" });

export class Links {
  constructor(base, room, list) {
    Object.assign(this, { base, room, list });
    this.offer();
    list.closest("details").addEventListener("toggle", (event) => { if (event.target.open) attempt(() => this.refresh()); });
  }

  // A link for each way workers come; none is shown twice, since only its hash is stored.
  offer() {
    this.room.replaceChildren(...KINDS.map(([kind, word, look]) => el("button", { type: "button", class: look, onclick: () => attempt(() => this.make(kind)) }, word)));
  }

  async make(kind) {
    const { url, id } = await owner("POST", `${this.base}/links`, { kind });
    const field = el("input", { type: "text", readonly: true, class: "link-field", "aria-label": "Invite link", onfocus: (event) => event.target.select() });
    field.value = url;
    const button = el("button", { type: "button", class: "primary" }, "Copy");
    button.addEventListener("click", () => copy(url, button, "Copied"));
    this.newest = id;
    this.room.replaceChildren(field, button, el("a", { class: "aside", href: url, target: "_blank", rel: "noopener" }, "Try it as a worker"),
      el("button", { type: "button", class: "quiet", onclick: () => this.offer() }, "Make another link"));
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
