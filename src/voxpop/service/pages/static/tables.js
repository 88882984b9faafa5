// Tasks and workers as tables that refresh while they are read.
/* global Listing, brief, plural, facts, shape */

import { el } from "./dom.js";
import { attempt, count, money, owner, rowsOf, say } from "./owner.js";
import { COORDINATES, estimateText, taskAddress, workerAddress } from "./texts.js";

// A table over rows that come anew; what the reader sorted, searched and turned to stays.
class Live {
  constructor(options) {
    this.rows = [];
    this.note = el("p", { class: "capped", hidden: true });
    this.options = options;
    this.list = null;
    this.node = el("div", {}, this.note, el("p", { class: "none" }, options.none));
  }

  put({ rows, total }) {
    this.rows = rows;
    this.note.hidden = rows.length >= total;
    this.note.textContent = `${count(rows.length)} of ${count(total)} are shown: those that most need a look. The export has all of them.`;
    const order = [...rows.keys()];
    if (!rows.length) return;
    if (!this.list) {
      this.list = new Listing({ ...this.options.listing(this), rows: order });
      this.node.replaceChildren(this.note, this.list.node);
      return;
    }
    const { page } = this.list;
    const focused = this.list.body.contains(document.activeElement) ? document.activeElement.closest("tr")?.dataset.row : null;
    this.list.all = order;
    this.list.refresh();
    this.list.show(page);
    if (focused) this.list.body.querySelector(`tr[data-row="${focused}"] a.link`)?.focus({ preventScroll: true });
  }
}

export class Tasks extends Live {
  constructor(base, question) {
    super({
      none: "Tasks appear here with their first answers.",
      listing: (self) => ({
        word: "task", columns: self.columns(), link: (i) => taskAddress(self.rows[i].name),
        search: (i) => `${self.rows[i].name} ${self.rows[i].reason || ""}`.toLowerCase(),
        filters: [
          { title: "needs a look", keep: (i) => self.rows[i]?.needs_a_look },
          { title: "still open", keep: (i) => self.rows[i]?.state === "open" },
          { title: "done", keep: (i) => self.rows[i]?.state === "done" },
        ],
      }),
    });
    Object.assign(this, { base, question });
  }

  async refresh() { this.put(await rowsOf(`${this.base}/estimates?order=look`)); }

  // The reasons to look, the most frequent first, with how many tasks each.
  reasons() {
    const counts = new Map();
    for (const row of this.rows.filter((one) => one.needs_a_look)) for (const reason of reasonsOf(row)) counts.set(reason, (counts.get(reason) || 0) + 1);
    return [...counts].sort((a, b) => b[1] - a[1]);
  }

  named(name) { return this.rows.find((row) => row.name === name); }

  columns() {
    const row = (i) => this.rows[i];
    const names = COORDINATES[this.question.kind] || ["Estimate"];
    const one = names.length === 1;
    // No interval is known before the noise of the workers is.
    const sure = (i) => Number.isFinite(row(i).lower_95?.[0]);
    const width = (i) => (sure(i) ? Math.max(...row(i).upper_95.map((x, j) => x - row(i).lower_95[j])) : null);
    const interval = (i) => (sure(i) ? `${estimateText(row(i).lower_95[0], row(i).sd?.[0])} to ${estimateText(row(i).upper_95[0], row(i).sd?.[0])}` : "–");
    return [
      { title: "Task", text: true, value: (i) => row(i).name },
      ...names.map((name, j) => ({ title: name, minor: j > 1, value: (i) => row(i).estimate?.[j] ?? null, cell: (i) => estimateText(row(i).estimate?.[j], row(i).sd?.[j]) })),
      one
        ? { title: "95 % interval", minor: true, value: width, csv: interval, cell: interval }
        : { title: "Widest interval", hint: "Width of the widest 95 % interval of the coordinates", value: width, cell: (i) => (sure(i) ? brief(width(i)) : "–") },
      ...(one ? [{ title: "On the scale", minor: true, cell: (i) => this.band(row(i)) }] : []),
      { title: "Answers", minor: true, value: (i) => row(i).n_answers, cell: (i) => String(row(i).n_answers) },
      { title: "State", text: true, minor: true, value: (i) => row(i).state, cell: (i) => el("span", { class: `small-state ${row(i).state}` }, row(i).kind === "gold" ? `${row(i).state}, gold` : row(i).state) },
      { title: "Why look", text: true, value: (i) => (row(i).needs_a_look ? row(i).reason || "needs a look" : "\uffff"), csv: (i) => row(i).reason || "", cell: (i) => (row(i).needs_a_look ? reasons(row(i)) : "") },
    ];
  }

  // The interval on the range of all estimates: wide ones are seen at a glance.
  band(row) {
    if (!Number.isFinite(row.lower_95?.[0])) return "";
    const [low, high] = this.range();
    const at = (x) => 2 + (146 * (Math.min(Math.max(x, low), high) - low)) / (high - low || 1);
    return sketchOf(at(row.lower_95[0]), at(row.upper_95[0]), at(row.estimate[0]));
  }

  range() {
    if (this.ranged === this.rows) return this.bounds;
    const known = this.rows.filter((row) => row.estimate);
    const { min, max } = this.question;
    const low = Number.isFinite(min) && Number.isFinite(max) ? min : Math.min(...known.map((row) => row.lower_95?.[0] ?? row.estimate[0]));
    const high = Number.isFinite(min) && Number.isFinite(max) ? max : Math.max(...known.map((row) => row.upper_95?.[0] ?? row.estimate[0]));
    Object.assign(this, { ranged: this.rows, bounds: [low, high] });
    return this.bounds;
  }
}

const tag = (text) => el("span", { class: "tag" }, text);
const reasonsOf = (row) => (row.reason || "needs a look").split(/,\s*/);

function reasons(row) {
  return reasonsOf(row).flatMap((text) => [tag(text), " "]);
}

function sketchOf(from, to, at) {
  const drawn = shape("svg", { class: "sketch", viewBox: "0 0 150 22", width: 150, height: 22, "aria-hidden": "true" });
  drawn.append(shape("line", { class: "grid", x1: 2, x2: 148, y1: 11, y2: 11 }), shape("rect", { class: "band", x: from, width: Math.max(to - from, 2), y: 5, height: 12, rx: 3 }), shape("line", { class: "estimate", x1: at, x2: at, y1: 2, y2: 20 }));
  return drawn;
}

// The noise of a worker: its sd, or the middle of its interval; null while nothing is known.
function noiseOf({ noise, noise_sd: sd }) {
  if (sd > 0) return sd;
  return noise?.[0] > 0 && noise[1] > 0 ? Math.sqrt(noise[0] * noise[1]) : null;
}

const noiseInterval = ({ noise }) => (noise?.[1] > 0 ? `${brief(noise[0])} to ${brief(noise[1])}` : null);

export class Workers extends Live {
  constructor(base, changed, currency) {
    super({
      none: "No workers yet.",
      listing: (self) => ({
        word: "worker", columns: self.columns(), link: (i) => workerAddress(self.rows[i].pseudonym),
        search: (i) => `${self.rows[i].pseudonym} ${self.rows[i].flags.join(" ")} ${self.rows[i].state}`.toLowerCase(),
        filters: [{ title: "flagged", keep: (i) => self.rows[i]?.flags.length > 0 }, { title: "not active", keep: (i) => self.rows[i] && self.rows[i].state !== "active" }],
      }),
    });
    Object.assign(this, { base, changed, currency });
  }

  async refresh() { this.put(await rowsOf(`${this.base}/workers`)); }

  row(pseudonym) { return this.rows.find((row) => row.pseudonym === pseudonym); }

  // Whom to talk to: flagged, and nothing done about it yet.
  flagged() { return this.rows.filter((row) => row.flags.length && row.state === "active"); }

  columns() {
    const row = (i) => this.rows[i];
    const noise = (i) => noiseOf(row(i));
    const interval = (i) => noiseInterval(row(i)) || "–";
    return [
      { title: "Worker", text: true, value: (i) => row(i).pseudonym },
      { title: "Noise sd", hint: "Standard deviation of this worker's answers around the truth", value: noise, cell: (i) => (noise(i) === null ? "–" : brief(noise(i))) },
      { title: "95 % interval", minor: true, value: (i) => (row(i).noise ? row(i).noise[1] - row(i).noise[0] : null), csv: interval, cell: interval },
      { title: "Answers", value: (i) => row(i).n_answers, cell: (i) => count(row(i).n_answers) },
      { title: "Earned", minor: true, value: (i) => row(i).earned ?? 0, cell: (i) => money(row(i).earned ?? 0, this.currency) },
      { title: "Flags", text: true, value: (i) => row(i).flags.join() || "\uffff", csv: (i) => row(i).flags.join(", "), cell: (i) => row(i).flags.map(tag) },
      { title: "State", text: true, minor: true, value: (i) => row(i).state, cell: (i) => el("span", { class: `small-state ${row(i).state}` }, row(i).state) },
    ];
  }

  async set(row, state) {
    const done = await attempt(() => owner("PATCH", `${this.base}/workers/${encodeURIComponent(row.id ?? row.pseudonym)}`, { state }));
    if (done === null) return;
    row.state = state;
    say({ active: `${row.pseudonym} is active again; the answers count.`, paused: `${row.pseudonym} gets no more tasks for now; the answers count.`, quarantined: `The answers of ${row.pseudonym} do not count any more. They are still paid.`, banned: `${row.pseudonym} gets no more tasks, and the answers do not count.` }[state]);
    await attempt(() => this.changed());
  }

  // One click each; nothing happens by itself.
  actions(row, after = () => {}) {
    const to = (word, state, title, kind = "") => el("button", { type: "button", title, class: kind, onclick: async () => { await this.set(row, state); after(); } }, word);
    if (row.state !== "active") return row.state === "erased" ? [] : [to("Count them again", "active", "Active, and all answers count", "primary")];
    return [
      to("Quarantine", "quarantined", "The answers stop counting; the worker goes on and is paid"),
      to("Pause", "paused", "No more tasks for now; the answers count"),
    ];
  }
}

// A worker to talk to, with what stands out and the proposal.
export function talk(row, workers) {
  const said = noiseOf(row) > 0 ? `, noise sd ${brief(noiseOf(row))}` : "";
  return el("li", {}, el("h3", {}, el("a", { class: "id", href: workerAddress(row.pseudonym) }, row.pseudonym)), el("p", {}, ...row.flags.map(tag)),
    el("p", { class: "soft" }, `${plural(row.n_answers, "answer")}${said}`), el("p", { class: "choices-row" }, ...workers.actions(row)));
}

export function workerDetails(row, workers) {
  const box = el("div", { class: "choices-row" });
  const fill = () => box.replaceChildren(el("span", { class: `small-state ${row.state}` }, row.state), ...workers.actions(row, fill));
  fill();
  const parts = [facts([
    ["Noise sd", noiseOf(row) > 0 ? brief(noiseOf(row)) : "–", noiseInterval(row) ? `95 %: ${noiseInterval(row)}` : null],
    ["Answers", count(row.n_answers)],
    ["Earned", money(row.earned ?? 0, workers.currency)],
  ])];
  if (row.flags.length) parts.push(el("p", {}, ...row.flags.map(tag)));
  parts.push(box, el("p", { class: "hint" }, "Quarantine: the answers stop counting, the worker goes on and is paid. Pause: no more tasks for now, the answers count. Both can be undone."));
  return { kind: "Worker", title: row.pseudonym, parts };
}
