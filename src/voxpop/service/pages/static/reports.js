// What workers reported about tasks, the newest first; a task can be withdrawn from here.

import { el } from "./dom.js";
import { attempt, count, owner, say } from "./owner.js";
import { taskAddress, workerAddress } from "./texts.js";

const MOST = 50;

export class Reports {
  constructor(base, room, list) {
    Object.assign(this, { base, room, list });
  }

  async refresh(total = 0) {
    const { rows } = total ? await owner("GET", `${this.base}/reports?limit=${MOST}`) : { rows: [] };
    this.room.hidden = !rows.length;
    const more = total > rows.length ? [el("li", { class: "soft" }, `and ${count(total - rows.length)} older ones`)] : [];
    this.list.replaceChildren(...rows.map((row) => this.item(row)), ...more);
  }

  item(row) {
    const open = row.task_state === "open";
    const end = open
      ? el("button", { type: "button", title: "Nobody gets it again; its answers stay", onclick: () => attempt(() => this.withdraw(row.task)) }, "Withdraw the task")
      : el("span", { class: `small-state ${row.task_state}` }, row.task_state);
    return el("li", {}, el("h3", {}, el("a", { class: "id", href: taskAddress(row.task) }, row.task)),
      el("blockquote", { class: "content" }, el("bdi", {}, row.text)),
      el("p", { class: "soft" }, "by ", el("a", { href: workerAddress(row.worker) }, row.worker)), el("p", { class: "choices-row" }, end));
  }

  async withdraw(name) {
    await owner("POST", `${this.base}/tasks/withdraw`, { names: [name] });
    say(`${name} is withdrawn: nobody gets it again.`);
    for (const row of [...this.list.children]) if (row.querySelector("a.id")?.textContent === name) row.querySelector(".choices-row").replaceChildren(el("span", { class: "small-state withdrawn" }, "withdrawn"));
  }
}
