// Tables to sort, search and leaf through; and the details of one task or one worker.

// A table over `rows` (numbers of things): columns are { title, value, cell, text, minor }, the first
// opens a row where `open` is given. Only one page of rows is in the document at a time.
class Listing {
  constructor({ word, rows, columns, size = 25, sort = null, search = null, filter = null, open = null, caption = null }) {
    Object.assign(this, { word, all: rows, rows, columns, size, open, search, filter, page: 0 });
    this.needle = "";
    this.filtered = false;
    this.sorted = sort || { column: null, down: false };
    this.node = element("div", { class: "list" });
    if (search || filter) this.node.append(this.tools());
    this.head = element("tr");
    columns.forEach((column, k) => this.head.append(this.heading(column, k)));
    this.body = element("tbody");
    const table = element("table", {}, element("thead", {}, this.head), this.body);
    if (caption) table.prepend(element("caption", {}, caption));
    this.pager = element("div", { class: "pager" });
    this.node.append(element("div", { class: "wide" }, table), this.pager);
    this.body.addEventListener("click", (event) => this.clicked(event));
    this.body.addEventListener("keydown", (event) => this.moved(event));
    this.refresh();
  }

  tools() {
    const bar = element("div", { class: "tools" });
    if (this.search) {
      const name = `Search ${this.word}s`;
      const box = element("input", { type: "search", placeholder: name, "aria-label": name, autocomplete: "off", spellcheck: "false" });
      box.addEventListener("input", () => {
        this.needle = box.value.trim().toLowerCase();
        this.refresh();
      });
      bar.append(box);
    }
    if (this.filter) {
      const box = element("input", { type: "checkbox" });
      box.addEventListener("change", () => {
        this.filtered = box.checked;
        this.refresh();
      });
      bar.append(element("label", { class: "check" }, box, this.filter.title));
    }
    this.told = element("span", { class: "told", role: "status" });
    bar.append(this.told);
    return bar;
  }

  heading(column, k) {
    const head = element("th", { scope: "col", class: classes(column) });
    if (!column.value) {
      head.append(column.title);
      return head;
    }
    const button = element("button", { type: "button" }, column.title);
    if (column.hint) button.title = column.hint;
    button.addEventListener("click", () => {
      const same = this.sorted.column === k;
      // Names from A, numbers from the largest: what one wants to see first.
      this.sorted = { column: k, down: same ? !this.sorted.down : !column.text };
      this.refresh();
    });
    head.append(button);
    return head;
  }

  refresh() {
    this.rows = this.all.filter(
      (i) => (!this.needle || this.search(i).includes(this.needle)) && (!this.filtered || this.filter.keep(i)),
    );
    const { column, down } = this.sorted;
    if (column !== null) {
      const { value, text } = this.columns[column];
      const keys = new Map(this.rows.map((i) => [i, value(i)]));
      const order = text ? collator.compare : (a, b) => (a ?? -Infinity) - (b ?? -Infinity) || 0;
      this.rows.sort((a, b) => (down ? -1 : 1) * order(keys.get(a), keys.get(b)) || a - b);
    }
    [...this.head.children].forEach((head, k) => {
      if (k === column) head.setAttribute("aria-sort", down ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    });
    if (this.told) {
      const some = this.rows.length < this.all.length;
      this.told.textContent = some ? `${count(this.rows.length)} of ${plural(this.all.length, this.word)}` : "";
    }
    this.show(0);
  }

  show(page) {
    const pages = Math.max(Math.ceil(this.rows.length / this.size), 1);
    this.page = Math.min(Math.max(page, 0), pages - 1);
    const first = this.page * this.size;
    const shown = this.rows.slice(first, first + this.size);
    this.body.replaceChildren(...shown.map((i) => this.row(i)));
    if (!shown.length) {
      const none = element("td", { colspan: this.columns.length, class: "none text" }, `No ${this.word} is like that.`);
      this.body.append(element("tr", {}, none));
    }
    const turn = (text, to, label) => {
      const button = element("button", { type: "button", "aria-label": label }, text);
      button.disabled = to < 0 || to >= pages;
      button.addEventListener("click", () => {
        this.show(to);
        const same = this.pager.querySelector(`[aria-label="${label}"]`);
        (same.disabled ? this.pager.querySelector("button:enabled") : same)?.focus();
      });
      return button;
    };
    const text = `${count(first + 1)}–${count(first + shown.length)} of ${count(this.rows.length)}`;
    const parts = pages > 1 ? [turn("‹", this.page - 1, `Previous ${this.word}s`), text, turn("›", this.page + 1, `Next ${this.word}s`)] : [];
    this.pager.replaceChildren(...parts);
  }

  row(i) {
    const row = element("tr", this.open ? { class: "opens" } : {});
    this.columns.forEach((column, k) => {
      const cell = element("td", { class: classes(column) });
      const content = column.cell(i);
      if (k === 0 && this.open) cell.append(element("button", { type: "button", class: "link id" }, content));
      else cell.append(...[content].flat());
      row.append(cell);
    });
    row.dataset.row = i;
    return row;
  }

  clicked(event) {
    const row = event.target.closest("tr.opens");
    if (row && !String(getSelection())) this.open(Number(row.dataset.row));
  }

  moved(event) {
    const step = { ArrowDown: "nextElementSibling", ArrowUp: "previousElementSibling" }[event.key];
    const next = step && event.target.closest("tr")?.[step]?.querySelector("button.link");
    if (!next) return;
    event.preventDefault();
    next.focus();
  }
}

const collator = new Intl.Collator("en", { numeric: true, sensitivity: "base" });

function classes(column) {
  return [column.text ? "text" : "", column.minor ? "minor" : ""].join(" ").trim();
}

// The dialog: one thing at a time, with a way back to the one before.
class Details {
  constructor(dialog) {
    this.dialog = dialog;
    this.before = [];
    dialog.addEventListener("close", () => { this.before = []; });
    dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });
  }

  open(make, back = false) {
    if (!this.dialog.open) this.before = [];
    if (!back) this.before.push(make);
    const { title, kind, parts } = make();
    const close = element("button", { type: "button" }, "Close");
    close.addEventListener("click", () => this.dialog.close());
    const buttons = element("div", {});
    if (this.before.length > 1) {
      const again = element("button", { type: "button" }, "Back");
      again.addEventListener("click", () => {
        this.before.pop();
        this.open(this.before[this.before.length - 1], true);
      });
      buttons.append(again);
    }
    buttons.append(close);
    const name = element("h2", { id: "details-title" }, `${kind} `, element("bdi", {}, title));
    this.dialog.replaceChildren(element("div", { class: "bar-top" }, name, buttons), ...parts);
    if (!this.dialog.open) this.dialog.showModal();
    this.dialog.scrollTop = 0;
    close.focus({ preventScroll: true });
  }
}

function facts(list) {
  const parts = list.map(([name, value, more]) => {
    const shown = element("dd", {}, value);
    if (more) shown.append(element("small", {}, more));
    return element("div", {}, element("dt", {}, name), shown);
  });
  return element("dl", { class: "facts" }, ...parts);
}

function weightCell(weight) {
  const fill = element("i");
  fill.style.width = percent(weight).replace(" ", "");
  return [percent(weight), element("span", { class: "meter", "aria-hidden": "true" }, fill)];
}

// What is known of one task.
function taskDetails(data, i, show) {
  const { names, tasks, answers, workers } = data;
  const edges = data.edgesOf(i);
  const gold = data.gold.has(i);
  const parts = [];
  parts.push(facts([
    ...names.slice(0, 8).map((name, j) => [
      names.length > 1 ? name : gold ? "Known truth" : "Estimate",
      data.told(tasks.estimate[j][i], j),
      gold ? "gold" : `95 %: ${data.told(tasks.lower[j][i], j)} to ${data.told(tasks.upper[j][i], j)}`,
    ]),
    ["sd", gold ? "0" : brief(data.taskSd(i)), names.length > 1 ? "over the coordinates" : null],
    ["Mean of the answers", names.slice(0, 8).map((_, j) => data.told(tasks.mean[j][i], j)).join(", "), null],
    ...(tasks.truth && tasks.truth[0][i] !== null
      ? [["Truth", names.slice(0, 8).map((_, j) => data.told(tasks.truth[j][i], j)).join(", "), null]] : []),
    ...(tasks.difficulty ? [["Difficulty", `${brief(tasks.difficulty[i])} ×`, "noise variance, against the usual"]] : []),
  ]));
  if (tasks.shown[i] < tasks.n[i]) {
    parts.push(element("p", { class: "capped" }, `${count(tasks.shown[i])} of ${count(tasks.n[i])} answers are in this file: those of the workers who count most.`));
  }
  const said = (e) => names.map((_, j) => data.said(answers.value[j][e], j)).join(", ");
  const byWeight = [...edges].sort((a, b) => answers.weight[b] - answers.weight[a]);
  const dot = (e, j) => ({
    x: answers.value[j][e],
    value: names.map((_, k) => answers.value[k][e]),
    weight: answers.weight[e],
    tip: `${workers.id[answers.worker[e]]}: ${said(e)}\nweight ${percent(answers.weight[e])}`,
    open: () => show.worker(answers.worker[e]),
  });
  const key = "Dots are answers, larger with more weight; the band is the 95 % interval, the line the estimate, the diamond the mean" + (tasks.truth ? ", the second line the truth." : ".");
  const vector = (columns) => names.map((_, j) => columns[j][i]);
  const truth = tasks.truth && tasks.truth[0][i] !== null ? vector(tasks.truth) : null;
  if (["xmin,ymin,xmax,ymax", "x,y"].includes(names.join())) {
    const list = byWeight.map((e) => dot(e, 0)).reverse();
    const what = names.length === 4 ? "Boxes" : "Points";
    const tip = `estimate: ${names.map((_, j) => data.told(tasks.estimate[j][i], j)).join(", ")}`;
    parts.push(picture(`${what} in the image`, "Stronger with more weight; the estimate in blue.", plane(list, vector(tasks.estimate), truth, tip)));
  }
  names.slice(0, 8).forEach((name, j) => {
    const at = {
      estimate: tasks.estimate[j][i], lower: tasks.lower[j][i], upper: tasks.upper[j][i],
      mean: tasks.mean[j][i], truth: truth ? truth[j] : null,
    };
    const drawn = strip(name, at, byWeight.map((e) => dot(e, j)), (v) => data.told(v, j));
    parts.push(element("figure", { class: "picture" }, ...(j === 0 ? [element("figcaption", {}, key)] : []), drawn));
  });
  const list = new Listing({
    word: "answer", rows: byWeight, size: 15, caption: `${plural(tasks.n[i], "answer")}, heaviest first`,
    open: (e) => show.worker(answers.worker[e]),
    columns: [
      { title: "Worker", text: true, value: (e) => workers.id[answers.worker[e]], cell: (e) => workers.id[answers.worker[e]] },
      ...names.slice(0, 8).map((name, j) => ({ title: names.length > 1 ? name : "Answer", value: (e) => answers.value[j][e], cell: (e) => data.said(answers.value[j][e], j) })),
      { title: "Weight", hint: answers.meaning, value: (e) => answers.weight[e], cell: (e) => weightCell(answers.weight[e]) },
      ...(answers.off ? [{ title: "Sds off", hint: "Distance from what the others predict, in its standard deviations", value: (e) => Math.abs(answers.off[e] ?? 0), cell: (e) => (names.length > 1 ? fixed : signed)(answers.off[e], 1) }] : []),
    ],
  });
  parts.push(list.node, element("p", { class: "told none" }, `Weight: ${answers.meaning}. ${gold ? "The truth of this task is known: no answer counts." : ""}`));
  return { kind: "Task", title: tasks.id[i], parts };
}

// What is known of one worker.
function workerDetails(data, u, show) {
  const { names, tasks, answers, workers } = data;
  const edges = data.edgesBy(u);
  const parts = [];
  parts.push(facts([
    ["Noise sd", brief(workers.sd[u]), `95 %: ${brief(workers.lower[u])} to ${brief(workers.upper[u])}`],
    ["Weight", `${brief(workers.weight[u])} ×`, "of the average worker's"],
    ...(workers.bias ? names.slice(0, 8).map((name, j) => [
      names.length > 1 ? `Bias of ${name}` : "Bias", signed(workers.bias[j][u], data.digits[j] - 2), `± ${brief(workers.biasSd[j][u])} (sd)`,
    ]) : []),
    ["Answers", count(workers.n[u]), null],
  ]));
  const flags = data.flagsOf(u);
  if (flags.length) {
    const list = element("ul", { class: "evidence" });
    for (const [, kind, evidence, alarms] of flags) {
      const odds = alarms < 1e-6 ? "less than one in a million" : `about one in ${count(Number((1 / alarms).toPrecision(2)))}`;
      list.append(element("li", {}, element("span", { class: "tag" }, kind), `${evidence}. Of honest crowds, ${odds} would show as much.`));
    }
    parts.push(list);
  }
  if (edges.length < workers.n[u]) {
    parts.push(element("p", { class: "capped" }, `${count(edges.length)} of ${plural(workers.n[u], "answer")} are to tasks in this file; only those are shown here.`));
  }
  const rest = (e, j) => answers.value[j][e] - tasks.estimate[j][data.taskOf(e)];
  const size = (e) => Math.sqrt(names.reduce((sum, _, j) => sum + rest(e, j) ** 2, 0) / names.length);
  const drawn = edges.length > 2000 ? edges.filter((_, k) => k % Math.ceil(edges.length / 2000) === 0) : edges;
  if (drawn.length) names.slice(0, 4).forEach((name, j) => {
    const list = drawn.map((e) => {
      const i = data.taskOf(e);
      return {
        x: tasks.estimate[j][i], y: rest(e, j), flagged: Math.abs(answers.off?.[e] ?? 0) > 3 ? 1 : 0,
        tip: `${tasks.id[i]}: said ${data.said(answers.value[j][e], j)}, estimate ${data.told(tasks.estimate[j][i], j)}\nresidual ${signed(rest(e, j), data.digits[j] - 2)}`,
        open: () => show.task(i),
      };
    });
    const what = names.length > 1 ? ` of ${name}` : "";
    parts.push(picture(`Residuals${what}`, "Answer less estimate, task by task; orange: more than 3 sds off what the others predict.", dots(list, [`estimate${what}`, "residual"], `Residuals${what} of this worker`, { zero: true, width: 780 })));
  });
  const list = new Listing({
    word: "answer", rows: edges, size: 15, caption: "Answers, farthest off first", sort: { column: names.length === 1 ? 3 : 2, down: true },
    open: (e) => show.task(data.taskOf(e)),
    columns: [
      { title: "Task", text: true, value: (e) => tasks.id[data.taskOf(e)], cell: (e) => tasks.id[data.taskOf(e)] },
      { title: "Answer", value: names.length === 1 ? (e) => answers.value[0][e] : null, cell: (e) => names.slice(0, 8).map((_, j) => data.said(answers.value[j][e], j)).join(", ") },
      ...(names.length === 1 ? [{ title: "Estimate", minor: true, value: (e) => tasks.estimate[0][data.taskOf(e)], cell: (e) => data.told(tasks.estimate[0][data.taskOf(e)], 0) }] : []),
      { title: names.length === 1 ? "Residual" : "Distance", value: (e) => (names.length === 1 ? Math.abs(rest(e, 0)) : size(e)), cell: (e) => (names.length === 1 ? signed(rest(e, 0), data.digits[0] - 2) : brief(size(e))) },
      { title: "Weight", minor: true, hint: answers.meaning, value: (e) => answers.weight[e], cell: (e) => weightCell(answers.weight[e]) },
      ...(answers.off ? [{ title: "Sds off", value: (e) => Math.abs(answers.off[e] ?? 0), cell: (e) => (names.length > 1 ? fixed : signed)(answers.off[e], 1) }] : []),
    ],
  });
  parts.push(list.node);
  return { kind: "Worker", title: workers.id[u], parts };
}
