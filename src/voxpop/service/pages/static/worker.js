// The worker page: instructions, practice, tasks, and the end.

import { Problem } from "./api.js";
import { askReason, askReport, showInstructions } from "./dialogs.js";
import { el } from "./dom.js";
import { ending, opening } from "./endings.js";
import { Lease, Session } from "./session.js";
import { Store } from "./store.js";
import { preload, taskView } from "./taskview.js";
import { counted, t, vector, written } from "./words.js";

const app = document.getElementById("app");
const [top, main, foot, notice] = ["top", "main", "foot", "notice"].map((id) => document.getElementById(id));
const calm = 20; // seconds between two looks for a task, where the server does not say
const finePointer = matchMedia("(pointer: fine)").matches;

class Worker {
  constructor(slug) {
    this.store = new Store(slug);
    this.session = new Session(slug, this.store, (trouble) => this.trouble(trouble));
    this.lease = new Lease(this.session);
    this.answered = 0;
  }

  async start() {
    const entered = await this.session.enter();
    this.campaign = entered.campaign;
    document.title = this.campaign.title;
    foot.hidden = !entered.worker;
    if (entered.worker) foot.replaceChildren(el("p", {}, t("you_are", { name: entered.worker })));
    if (entered.preview) this.preview();
    else if (this.store.get("started") || !(this.campaign.instructions || this.campaign.practice)) await this.work();
    else this.open();
  }

  preview() {
    this.header(null);
    const { node, control } = taskView(this.campaign.question, { text: this.campaign.instructions || "" });
    control.lock(true);
    main.replaceChildren(el("section", { class: "card-page" }, el("h1", {}, t("preview_title")), el("p", {}, t("preview"))), node);
  }

  open() {
    this.header(null);
    const { page, button } = opening(this.campaign, () => {
      this.store.set("started", true);
      this.guard(() => this.work());
    });
    main.replaceChildren(page);
    button.focus({ preventScroll: true });
  }

  // First what was not sent, then the next task.
  async work() {
    const pending = this.store.get("pending");
    if (!pending) {
      await this.next();
      return;
    }
    try {
      const reply = await this.session.surely("PUT", `/offers/${pending.offer}/answer?next=1`, { value: pending.value, lead_ms: pending.lead_ms });
      this.store.drop("pending");
      this.say(t("back_online"));
      await this.show(reply.next || await this.ask());
    } catch (error) {
      this.store.drop("pending");
      if (!(error instanceof Problem)) throw error;
      this.refused(error);
      await this.next(true);
    }
  }

  ask() { return this.session.surely("POST", "/next", {}); }

  async next(keepNotice = false) {
    const found = await this.ask();
    if (!keepNotice) this.say("");
    await this.show(found);
  }

  // A task, or why there is none.
  async show(found) {
    clearTimeout(this.later);
    this.lease.hold(found.offer);
    if (!found.offer) {
      this.nothing(found);
      return;
    }
    this.answered = found.offer.answered;
    this.task(found.offer);
  }

  nothing({ reason, completion, retry_after: after }) {
    this.store.drop("draft");
    this.header(null);
    const page = ending(reason, this.answered, completion);
    if (!page.isEqualNode(main.firstElementChild)) {
      main.replaceChildren(page);
      page.querySelector("h1").focus({ preventScroll: true });
    }
    this.lastAnswer();
    if (reason === "wait" || reason === "paused") this.later = setTimeout(() => this.guard(() => this.next(true)), 1000 * (after || calm));
  }

  header(offer) {
    const text = [];
    if (offer?.practice) text.push(el("span", { class: "chip-practice" }, t("practice")));
    if (offer && this.answered > 0) text.push(el("span", { class: "soft" }, counted("answered", this.answered)));
    const help = offer && this.campaign.instructions
      ? el("button", { type: "button", class: "quiet", onclick: () => showInstructions(this.campaign.instructions) }, t("instructions")) : null;
    top.hidden = !offer;
    top.replaceChildren(el("h1", {}, el("bdi", {}, this.campaign.title)), el("div", { class: "top-right" }, ...text, help));
  }

  // Show a task; with `edit` the last one again, to change its answer.
  task(offer, edit = null) {
    this.offer = offer;
    this.sending = false;
    this.header(offer);
    const view = taskView(this.campaign.question, offer.task.content, { changed: () => this.changed(), submit: () => form.requestSubmit() });
    this.view = view;
    const send = el("button", { class: "primary", type: "submit" }, t(edit ? "submit_change" : "submit"));
    const wrong = el("p", { class: "wrong", role: "alert" });
    const others = edit
      ? [el("button", { type: "button", class: "quiet", onclick: () => this.guard(() => this.next()) }, t("cancel"))]
      : [
        el("button", { type: "button", class: "quiet", onclick: () => this.guard(() => this.skip()) }, t("skip")),
        el("button", { type: "button", class: "quiet", onclick: () => this.guard(() => this.report()) }, t("report")),
      ];
    const form = el("form", { class: "answer", novalidate: true, autocomplete: "off" },
      edit ? el("p", { class: "note" }, t("changing")) : offer.practice ? el("p", { class: "note" }, t("practice_note")) : null,
      view.node);
    view.place.append(wrong, el("div", { class: "send-bar" }, send, ...others));
    Object.assign(this, { form, send, wrong, edit, since: performance.now(), spent: 0 });
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.guard(() => this.submit());
    });
    main.replaceChildren(form);
    this.restore(edit);
    if (!edit) this.lastAnswer();
    window.scrollTo(0, 0);
    (finePointer ? view.control : view.heading).focus({ preventScroll: true });
    document.documentElement.dataset.ready = offer.id;
  }

  restore(edit) {
    const draft = this.store.get("draft");
    if (edit) this.view.control.restore(edit.state);
    else if (draft?.offer === this.offer.id && draft.state !== null && draft.state !== "") {
      this.spent = draft.spent || 0;
      this.view.control.restore(draft.state);
    }
  }

  changed() {
    if (this.wrong) this.wrong.textContent = "";
    if (this.edit || !this.view || this.sending) return;
    this.store.set("draft", { offer: this.offer.id, state: this.view.control.state(), spent: this.leadTime() });
  }

  leadTime() { return Math.min(Math.round(this.spent + performance.now() - this.since), 1e9); }

  lock(on) {
    this.sending = on;
    if (on) main.querySelector(".last")?.remove();
    this.view.control.lock(on);
    this.form.setAttribute("aria-busy", String(on));
    for (const button of this.form.querySelectorAll(".send-bar button")) button.disabled = on;
    this.send.textContent = t(on ? "sending" : this.edit ? "submit_change" : "submit");
  }

  async submit() {
    if (this.sending) return; // a double click
    const wrong = this.view.control.problem();
    this.wrong.textContent = wrong || "";
    if (wrong) {
      this.view.control.focus();
      return;
    }
    const value = this.view.control.value();
    const state = this.view.control.state();
    this.lock(true);
    if (this.edit) await this.sendEdit(value, state);
    else await this.sendAnswer(value, state);
  }

  async sendAnswer(value, state) {
    const { offer } = this;
    const body = { value, lead_ms: this.leadTime() };
    this.store.set("pending", { offer: offer.id, ...body });
    let reply;
    try {
      reply = await this.session.surely("PUT", `/offers/${offer.id}/answer?next=1`, body);
    } catch (error) {
      this.store.drop("pending");
      if (!(error instanceof Problem)) throw error;
      if (error.status === 422) {
        this.lock(false);
        this.lastAnswer();
        this.wrong.textContent = error.detail;
        return;
      }
      await this.refusedHere(error);
      return;
    }
    this.store.drop("pending");
    this.store.drop("draft");
    this.remember(offer, state, reply);
    const next = reply.next || await this.ask();
    const loaded = next.offer ? preload(this.campaign.question, next.offer.task.content) : null;
    if (reply.practice) await this.reveal(value, reply.practice.truth, next);
    else {
      await loaded;
      this.say(t("saved"), 4000);
      await this.show(next);
    }
  }

  // What can still be changed, for how long.
  remember(offer, state, reply) {
    const seconds = reply.editable_for;
    if (offer.practice || !(seconds > 0)) this.store.drop("last");
    else this.store.set("last", { offer, state, until: Date.now() + 1000 * seconds });
  }

  // Offer to change the last answer, as long as that is possible.
  lastAnswer() {
    main.querySelector(".last")?.remove();
    clearTimeout(this.over);
    const last = this.store.get("last");
    const left = last ? last.until - Date.now() : 0;
    if (!(left > 0) || last.offer.id === this.offer?.id && this.form?.isConnected) return;
    const button = el("button", { type: "button", class: "quiet", onclick: () => this.task(last.offer, last) }, t("change_last"));
    main.append(el("p", { class: "last" }, button));
    this.over = setTimeout(() => main.querySelector(".last")?.remove(), Math.min(left, 2 ** 31 - 1));
  }

  async sendEdit(value, state) {
    try {
      const reply = await this.session.surely("PUT", `/offers/${this.offer.id}/edit`, { value });
      this.remember(this.offer, state, reply);
      await this.next();
      this.say(t("changed"), 4000);
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
      if (error.status === 422) {
        this.lock(false);
        this.wrong.textContent = error.detail;
        return;
      }
      this.store.drop("last");
      await this.next();
      this.say(t("edit_late"));
    }
  }

  // After a practice answer: the truth, and then the next task.
  async reveal(value, truth, next) {
    const { control } = this.view;
    control.reveal(truth);
    this.form.setAttribute("aria-busy", "false");
    const { unit } = this.campaign.question;
    const text = (x) => (x.length === 1 ? `${written(x[0])}${unit ? ` ${unit}` : ""}` : vector(x));
    const image = truth.length > 1;
    const button = el("button", { type: "button", class: "primary", onclick: () => this.guard(() => this.show(next)) }, t("go_on"));
    const panel = el("div", { class: "truth-panel", role: "status" },
      el("p", { class: "truth-line" }, t("truth_is", { truth: text(truth) })), el("p", {}, t("you_said", { value: text(value) }), image ? ` ${t("truth_in_image")}` : ""));
    this.form.querySelector(".send-bar").replaceChildren(panel, button);
    button.focus({ preventScroll: true });
    panel.parentElement.scrollIntoView({ block: "nearest" });
  }

  async skip() {
    const reason = await askReason();
    if (reason === null) return;
    await this.leave("skip", { reason });
  }

  async report() {
    const text = await askReport();
    if (text === null) return;
    await this.leave("report", { text });
    this.say(t("reported"), 6000);
  }

  async leave(how, body) {
    this.lock(true);
    try {
      await this.session.surely("POST", `/offers/${this.offer.id}/${how}`, body);
    } catch (error) {
      if (!(error instanceof Problem) || ![404, 409, 410].includes(error.status)) throw error;
    }
    this.store.drop("draft");
    await this.next();
  }

  // The server takes no such answer any more: say why, with the way on.
  refused(error) {
    this.say(error.status === 409 ? t("elsewhere") : error.status === 410 ? t("gone") : t("failed", { detail: error.detail }));
  }

  async refusedHere(error) {
    this.store.drop("draft");
    if (error.status !== 409) {
      this.refused(error);
      await this.next(true);
      return;
    }
    this.form.setAttribute("aria-busy", "false");
    const button = el("button", { type: "button", class: "primary", onclick: () => this.guard(() => this.next()) }, t("go_on"));
    const panel = el("div", { class: "truth-panel conflict", role: "alert" }, el("p", { class: "truth-line" }, t("elsewhere_title")), el("p", {}, t("elsewhere")));
    this.form.querySelector(".send-bar").replaceChildren(panel, button);
    button.focus();
  }

  // A line at the bottom, for a while or until the next.
  say(text, ms = 0) {
    clearTimeout(this.quiet);
    notice.replaceChildren(...(text ? [el("p", {}, text)] : []));
    if (ms) this.quiet = setTimeout(() => notice.replaceChildren(), ms);
  }

  trouble(what) {
    const before = this.troubled;
    this.troubled = what;
    app.classList.toggle("troubled", Boolean(what));
    if (what?.offline) this.say(t(this.store.get("pending") ? "offline" : "offline_wait"));
    else if (what?.busy) this.say(t("busy", { n: what.busy }));
    else if (before) this.say(before.offline && this.store.get("pending") ? t("back_online") : "", 5000);
  }

  // Whatever goes wrong is said, and the page can be used on.
  async guard(action) {
    try {
      await action();
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
      if (this.form?.isConnected) this.lock(false);
      this.say(t("failed", { detail: error.detail }));
    }
  }
}

const worker = new Worker(app.dataset.slug);
worker.start().catch((error) => {
  if (!(error instanceof Problem)) throw error;
  const denied = [400, 401, 403, 404].includes(error.status);
  const texts = error.status === 410 ? [t("closed_title"), t("closed")] : denied ? [t("no_entry_title"), t("no_entry")] : [t("no_entry_title"), t("failed", { detail: error.detail })];
  main.replaceChildren(el("section", { class: "card-page" }, el("h1", {}, texts[0]), el("p", { class: "prose" }, texts[1]), denied ? el("p", { class: "soft" }, error.detail) : null));
  document.documentElement.dataset.ready = "refused";
});
