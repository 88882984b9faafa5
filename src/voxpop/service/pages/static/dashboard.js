// The owner's dashboard: the decision first, then what was bought, money, tasks and workers; live.
/* global startTips, Details */

import { el } from "./dom.js";
import { explainTask } from "./explain.js";
import { pictures, progressBar, sentences, tested, tiles } from "./figures.js";
import { Links } from "./links.js";
import { purse } from "./money.js";
import { attempt, count, owner, pill, say } from "./owner.js";
import { Reports } from "./reports.js";
import { Tasks, Workers, talk, workerDetails } from "./tables.js";
import { Terms } from "./terms.js";

const room = (id) => document.getElementById(id);
const main = room("main");
const { slug } = main.dataset;
const base = `/campaigns/${encodeURIComponent(slug)}`;

class Dashboard {
  constructor(campaign) {
    this.campaign = campaign;
    this.summary = null;
    this.tasks = new Tasks(base, campaign.question);
    this.workers = new Workers(base, () => this.refreshWorkers(), campaign.currency || campaign.rules?.currency || "EUR");
    this.reports = new Reports(base, room("reports"), room("report-list"));
    room("task-list").append(this.tasks.node);
    room("worker-list").append(this.workers.node);
    room("title").textContent = campaign.title || slug;
    document.title = `${campaign.title || slug} · voxpop`;
    this.buttons();
    this.exports();
    this.links = new Links(base, room("invite"), room("link-list"), campaign);
    this.terms = new Terms(base, room("terms"), campaign, () => this.money());
    startTips(room("tip"), room("details"));
    new Details(room("details"), {
      task: (hash) => () => explainTask(base, decodeURIComponent(hash.slice(6)), this.campaign.question, this.tasks.named(decodeURIComponent(hash.slice(6)))),
      worker: (hash) => {
        const found = this.workers.row(decodeURIComponent(hash.slice(8)));
        return found ? () => workerDetails(found, this.workers) : null;
      },
    });
  }

  // Pause, open and close the campaign.
  buttons() {
    const { state } = this.campaign;
    const to = (word, next, kind = "") => el("button", { type: "button", class: kind, onclick: () => attempt(() => this.change(next)) }, word);
    const shown = { draft: [to("Open", "open", "primary")], open: [to("Pause", "paused")], paused: [to("Resume", "open", "primary")], closed: [to("Open again", "open")] }[state] || [];
    if (state === "open" || state === "paused") shown.push(to("Close", "closed", "quiet"));
    room("state").replaceChildren(pill(state), ...shown);
  }

  async change(state) {
    await owner("PATCH", base, { state });
    this.campaign.state = state;
    this.buttons();
    say({ open: "The campaign is open: workers get tasks.", paused: "Paused: workers wait, and nothing is lost.", closed: "Closed: the campaign accepts no more answers." }[state]);
  }

  exports() {
    const kinds = [["answers", "Answers"], ["estimates", "Estimates"], ["credits", "Credits"], ["payments", "Payments"]];
    room("exports").append(...kinds.map(([what, word]) => el("div", { class: "export" }, el("b", {}, word),
      ...["csv", "json"].map((format) => el("a", { class: "button", href: `/api/v1${base}/export?what=${what}&format=${format}`, download: `${slug}-${what}.${format}` }, format.toUpperCase(), el("span", { class: "offscreen" }, ` of the ${word.toLowerCase()}`))))));
  }

  // Take in a summary, at most once a second; tables follow more slowly.
  take(summary) {
    this.latest = summary;
    this.seen = Date.now();
    if (!this.drawing) this.drawing = setTimeout(() => this.draw(), this.summary ? 900 : 0);
  }

  draw() {
    this.drawing = null;
    const summary = this.latest;
    const moved = ["seq", "n_answers", "n_reports"].some((name) => summary[name] !== this.summary?.[name]);
    this.summary = summary;
    if (summary.state && summary.state !== this.campaign.state) {
      this.campaign.state = summary.state;
      this.buttons();
    }
    Object.assign(this.campaign, Object.fromEntries(["budget", "spent", "reserved"].filter((key) => summary[key] !== undefined).map((key) => [key, summary[key]])));
    room("counts").replaceChildren(...[["answer", summary.n_answers], ["task", summary.n_tasks], ["worker", summary.n_workers]].flatMap(([word, n = 0], k) => [k ? " · " : "", el("b", {}, count(n)), ` ${word}${n === 1 ? "" : "s"}`]));
    room("degraded").hidden = !summary.notice;
    room("degraded").textContent = summary.notice || "";
    room("headline").textContent = headline(summary);
    room("progress-bar").replaceChildren(progressBar(summary));
    room("tiles").replaceChildren(...tiles(summary, this.tasks.reasons()));
    room("pictures").replaceChildren(...pictures(summary));
    room("sentences").replaceChildren(...sentences(summary));
    this.money();
    this.age();
    document.documentElement.dataset.ready = "yes";
    if (moved) this.refreshTables();
  }

  money() { if (this.summary) room("purse").replaceChildren(...purse(this.campaign, this.summary)); }

  // The tables cost more: at most every five seconds, and only while someone looks.
  refreshTables() {
    if (this.waiting) return;
    const pause = Math.max(0, 5000 - (Date.now() - (this.filled || 0)));
    this.waiting = setTimeout(async () => {
      this.waiting = null;
      if (document.hidden) {
        document.addEventListener("visibilitychange", () => this.refreshTables(), { once: true });
        return;
      }
      this.filled = Date.now();
      await attempt(() => this.fillTables());
    }, pause);
  }

  async fillTables() {
    await Promise.all([this.tasks.refresh(), this.refreshWorkers(), this.reports.refresh(this.summary?.n_reports)]);
    if (this.summary) room("tiles").replaceChildren(...tiles(this.summary, this.tasks.reasons()));
  }

  async refreshWorkers() {
    await this.workers.refresh();
    const flagged = this.workers.flagged();
    room("talk").hidden = !flagged.length;
    room("people").replaceChildren(...flagged.map((row) => talk(row, this.workers)));
  }

  // How old what is shown is, said every few seconds.
  age() {
    const { summary } = this;
    if (!summary) return;
    const old = summary.inference_seq >= summary.seq ? 0 : (summary.board_age_s ?? 0) + (Date.now() - this.seen) / 1000;
    const text = this.lost ? "not connected; trying again" : summary.n_answers === 0 ? "live" : `live · estimates ${old < 3 ? "up to date" : `${ageText(old)} old`}`;
    room("live").textContent = text;
    room("live").classList.toggle("on", !this.lost);
  }

  // Live by server-sent events; the browser connects again by itself.
  follow() {
    const source = new EventSource(`/api/v1${base}/live`);
    const heard = (event) => {
      this.lost = false;
      this.take(JSON.parse(event.data));
    };
    source.addEventListener("message", heard);
    source.addEventListener("summary", heard);
    source.addEventListener("error", () => {
      this.lost = true;
      this.age();
      if (source.readyState === EventSource.CLOSED) setTimeout(() => this.follow(), 10_000);
    });
    window.addEventListener("pagehide", () => source.close(), { once: true });
    setInterval(() => this.age(), 5000);
  }
}

function ageText(seconds) {
  if (seconds < 90) return `${Math.round(seconds)} s`;
  return seconds < 5400 ? `${Math.round(seconds / 60)} min` : `${Math.round(seconds / 3600)} h`;
}

function headline(summary) {
  if (!summary.n_tasks) return "No tasks yet: add some, then invite workers.";
  if (!summary.n_answers) return "Ready for the first answer: invite workers.";
  const n = (k, one, many) => `${count(k)} ${k === 1 ? one : many}`;
  const parts = [n(summary.ready ?? summary.n_done ?? 0, "task ready", "tasks ready")];
  parts.push(n(summary.need_a_look ?? 0, "needs a look", "need a look"));
  if (tested(summary)) parts.push(n(summary.workers_to_talk_to, "worker to talk to", "workers to talk to"));
  return parts.join(", ");
}

const campaign = await attempt(() => owner("GET", base));
if (campaign) {
  const dashboard = new Dashboard(campaign);
  const first = await attempt(() => owner("GET", `${base}/summary`));
  if (first) dashboard.take(first);
  dashboard.follow();
  attempt(() => dashboard.fillTables());
} else room("headline").textContent = "This campaign cannot be shown.";
