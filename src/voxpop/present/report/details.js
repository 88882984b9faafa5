// Tables to sort, search and page through; and the details of one task or one worker.

// A table over `rows` (indices): columns are { title, value, cell, text, minor, hint }, where `value`
// sorts and `cell`, by default the value, is shown. The first column opens a row where `open` is
// given. Only one page of rows is in the document at a time.
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
    this.status = element("span", { class: "status", role: "status" });
    bar.append(this.status);
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
      // Names start at A, numbers at the largest.
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
    if (this.status) {
      const some = this.rows.length < this.all.length;
      this.status.textContent = some ? `${count(this.rows.length)} of ${plural(this.all.length, this.word)}` : "";
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
      const none = element("td", { colspan: this.columns.length, class: "none text" }, `No matching ${this.word}s.`);
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
      const content = (column.cell || column.value)(i);
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

// The dialog: one task or worker at a time, with a way back to the previous one.
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

// A remark where not everything is in the file.
function capped(shown, total, text) {
  return shown < total ? [element("p", { class: "capped" }, text)] : [];
}

// Columns that the answers of a task and those of a worker share.
function answerColumns({ names, answers }, minor) {
  const hint = "Distance from what the others predict, in standard deviations";
  const off = { title: "Sds off", hint, value: (e) => Math.abs(answers.off[e] ?? 0), cell: (e) => (names.length > 1 ? fixed : signed)(answers.off[e], 1) };
  return [
    { title: "Weight", minor, hint: answers.meaning, value: (e) => answers.weight[e], cell: (e) => weightCell(answers.weight[e]) },
    ...(answers.off ? [off] : []),
  ];
}

// What is known of one task.
function taskDetails(data, i, show) {
  const { tasks, answers, workers } = data;
  const names = data.names.slice(0, 8);
  const vector = data.names.length > 1;
  const gold = data.gold.has(i);
  const truth = tasks.truth && tasks.truth[0][i] !== null ? tasks.truth.map((column) => column[i]) : null;
  const parts = [facts([
    ...names.map((name, j) => [
      vector ? name : gold ? "Known truth" : "Estimate",
      data.estimateText(tasks.estimate[j][i], j),
      gold ? "gold" : `95 %: ${data.intervalText(i, j)}`,
    ]),
    ["sd", gold ? "0" : brief(data.taskSd(i)), vector ? "over the coordinates" : null],
    ["Mean of the answers", data.vectorText(tasks.mean, i)],
    ...(truth ? [["Truth", data.vectorText(tasks.truth, i)]] : []),
    ...(tasks.difficulty ? [["Difficulty", `${brief(tasks.difficulty[i])} ×`, "the typical noise variance"]] : []),
  ])];
  parts.push(...capped(tasks.shown[i], tasks.n[i], `${count(tasks.shown[i])} of ${count(tasks.n[i])} answers are in this file: those of the workers with most weight.`));
  const byWeight = data.edgesOf(i).sort((a, b) => answers.weight[b] - answers.weight[a]);
  const dot = (e, j) => ({
    x: answers.value[j][e],
    value: answers.value.map((column) => column[e]),
    weight: answers.weight[e],
    tip: `${workers.id[answers.worker[e]]}: ${data.names.map((_, k) => data.answerText(answers.value[k][e], k)).join(", ")}\nweight ${percent(answers.weight[e])}`,
    open: () => show.worker(answers.worker[e]),
  });
  const key = `Dots are answers, larger with more weight. Band: 95 % interval; line: estimate; diamond: mean${truth ? "; orange line: truth" : ""}.`;
  if (["xmin,ymin,xmax,ymax", "x,y"].includes(names.join())) {
    const list = byWeight.map((e) => dot(e, 0)).reverse();
    const estimate = tasks.estimate.map((column) => column[i]);
    parts.push(picture(`${names.length === 4 ? "Boxes" : "Points"} in the image`, `Bolder with more weight. Blue: estimate${truth ? "; orange: truth" : ""}.`,
      plane(list, estimate, truth, `estimate: ${data.vectorText(tasks.estimate, i)}`)));
  }
  names.forEach((name, j) => {
    const at = {
      estimate: tasks.estimate[j][i], lower: tasks.lower[j][i], upper: tasks.upper[j][i],
      mean: tasks.mean[j][i], truth: truth && truth[j],
    };
    const drawn = strip(name, at, byWeight.map((e) => dot(e, j)), (v) => data.estimateText(v, j));
    parts.push(element("figure", { class: "picture" }, ...(j === 0 ? [element("figcaption", {}, key)] : []), drawn));
  });
  const list = new Listing({
    word: "answer", rows: byWeight, size: 15, caption: `${plural(tasks.n[i], "answer")}, heaviest first`,
    open: (e) => show.worker(answers.worker[e]),
    columns: [
      { title: "Worker", text: true, value: (e) => workers.id[answers.worker[e]] },
      ...names.map((name, j) => ({ title: vector ? name : "Answer", value: (e) => answers.value[j][e], cell: (e) => data.answerText(answers.value[j][e], j) })),
      ...answerColumns(data, false),
    ],
  });
  const unused = gold ? " The truth of this task is known, so no answer counts." : "";
  parts.push(list.node, element("p", { class: "none" }, `Weight: ${answers.meaning}.${unused}`));
  return { kind: "Task", title: tasks.id[i], parts };
}

// What is known of one worker.
function workerDetails(data, u, show) {
  const { names, tasks, answers, workers } = data;
  const vector = names.length > 1;
  const edges = data.edgesBy(u);
  const parts = [facts([
    ["Noise sd", brief(workers.sd[u]), `95 %: ${brief(workers.lower[u])} to ${brief(workers.upper[u])}`],
    ["Weight", `${brief(workers.weight[u])} ×`, "the average worker's"],
    ...(workers.bias ? names.slice(0, 8).map((name, j) => [
      vector ? `Bias of ${name}` : "Bias", data.differenceText(workers.bias[j][u], j), `± ${brief(workers.biasSd[j][u])} (sd)`,
    ]) : []),
    ["Answers", count(workers.n[u])],
  ])];
  const flags = data.flagsOf(u).map(([, kind, evidence, alarms]) => {
    const odds = alarms < 1e-6 ? "Fewer than 1 honest crowd in a million" : `About 1 honest crowd in ${count(Number((1 / alarms).toPrecision(2)))}`;
    return element("li", {}, element("span", { class: "tag" }, kind), `${evidence}. ${odds} would show this by chance.`);
  });
  if (flags.length) parts.push(element("ul", { class: "evidence" }, ...flags));
  parts.push(...capped(edges.length, workers.n[u], `${count(edges.length)} of ${plural(workers.n[u], "answer")} are to tasks in this file; only those are shown here.`));
  const residual = (e, j) => answers.value[j][e] - tasks.estimate[j][data.taskOf(e)];
  const distance = (e) => Math.sqrt(names.reduce((sum, _, j) => sum + residual(e, j) ** 2, 0) / names.length);
  const step = Math.ceil(edges.length / 2000);
  const drawn = edges.filter((_, k) => k % step === 0);
  if (drawn.length) names.slice(0, 4).forEach((name, j) => {
    const list = drawn.map((e) => {
      const i = data.taskOf(e);
      return {
        x: tasks.estimate[j][i], y: residual(e, j), flagged: Math.abs(answers.off?.[e] ?? 0) > 3 ? 1 : 0,
        tip: `${tasks.id[i]}: answer ${data.answerText(answers.value[j][e], j)}, estimate ${data.estimateText(tasks.estimate[j][i], j)}\nresidual ${data.differenceText(residual(e, j), j)}`,
        open: () => show.task(i),
      };
    });
    const of = vector ? ` of ${name}` : "";
    parts.push(picture(`Residuals${of}`, "Answer minus estimate, task by task. Orange: more than 3 sds from what the others predict.", dots(list, [`estimate${of}`, "residual"], `Residuals${of} of this worker`, { zero: true, width: 780 })));
  });
  const list = new Listing({
    word: "answer", rows: edges, size: 15, caption: "Answers, largest residual first", sort: { column: vector ? 2 : 3, down: true },
    open: (e) => show.task(data.taskOf(e)),
    columns: [
      { title: "Task", text: true, value: (e) => tasks.id[data.taskOf(e)] },
      { title: "Answer", value: vector ? null : (e) => answers.value[0][e], cell: (e) => names.slice(0, 8).map((_, j) => data.answerText(answers.value[j][e], j)).join(", ") },
      ...(vector
        ? [{ title: "Distance", hint: "From the estimate, per coordinate", value: distance, cell: (e) => brief(distance(e)) }]
        : [
          { title: "Estimate", minor: true, value: (e) => tasks.estimate[0][data.taskOf(e)], cell: (e) => data.estimateText(tasks.estimate[0][data.taskOf(e)], 0) },
          { title: "Residual", value: (e) => Math.abs(residual(e, 0)), cell: (e) => data.differenceText(residual(e, 0), 0) },
        ]),
      ...answerColumns(data, true),
    ],
  });
  parts.push(list.node);
  return { kind: "Worker", title: workers.id[u], parts };
}
