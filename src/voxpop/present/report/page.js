// The page: unpack the data, draw the pictures, list tasks and workers.

// The columns, indexed by task and by worker, and their numbers as text.
class Data {
  constructor(content) {
    Object.assign(this, content);
    const { tasks, answers, workers } = this;
    this.gold = new Set(tasks.gold);
    this.look = new Map(tasks.look);
    this.upper = new Set(answers.upper);
    this.byAddress = new Map([
      ...tasks.id.map((_, i) => [this.taskAddress(i), i]),
      ...workers.id.map((_, u) => [this.workerAddress(u), u]),
    ]);
    this.first = [0];
    tasks.shown.forEach((n, i) => this.first.push(this.first[i] + n));
    this.owner = new Int32Array(answers.worker.length);
    tasks.shown.forEach((_, i) => this.owner.fill(i, this.first[i], this.first[i + 1]));
    this.byWorker = workers.id.map(() => []);
    answers.worker.forEach((u, e) => this.byWorker[u].push(e));
    this.byFlag = new Map();
    for (const flag of this.flags) {
      this.byFlag.set(flag[0], [...(this.byFlag.get(flag[0]) || []), flag]);
    }
  }

  edgesOf(i) {
    return Array.from({ length: this.tasks.shown[i] }, (_, k) => this.first[i] + k);
  }

  taskAddress(i) { return address("task", this.tasks.id[i]); }
  workerAddress(u) { return address("worker", this.workers.id[u]); }
  edgesBy(u) { return this.byWorker[u]; }
  taskOf(e) { return this.owner[e]; }
  flagsOf(u) { return this.byFlag.get(u) || []; }
  kindsOf(u) { return this.flagsOf(u).map((flag) => flag[1]); }

  taskSd(i) {
    const { sd } = this.tasks;
    return Math.sqrt(sd.reduce((sum, column) => sum + column[i] ** 2, 0) / sd.length);
  }

  estimateText(x, j) { return fixed(x, this.digits[j] - 2); }
  answerText(x, j) { return fixed(x, this.answerDigits[j]); }
  differenceText(x, j) { return signed(x, this.digits[j] - 2); }
  noiseIntervalText(u) { return `${brief(this.workers.lower[u])} to ${brief(this.workers.upper[u])}`; }
  intervalText(i, j) { return `${this.estimateText(this.tasks.lower[j][i], j)} to ${this.estimateText(this.tasks.upper[j][i], j)}`; }
  vectorText(columns, i) { return columns.slice(0, 8).map((column, j) => this.estimateText(column[i], j)).join(", "); }
}

async function unpack(text) {
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return JSON.parse(await new Response(stream).text());
}

function pictures(data, show) {
  const { sd, calibration, trace } = data.pictures;
  const room = document.getElementById("pictures");
  if (sd) {
    const { bounds, counts, largest } = sd;
    const tip = (k) => {
      const last = k === counts.length - 1 && largest > bounds[k + 1];
      return `sd ${brief(bounds[k])} to ${brief(last ? largest : bounds[k + 1])}\n${plural(counts[k], "task")}`;
    };
    room.append(picture("Uncertainty of the estimates", "Tasks by the sd of their estimate; the last bar includes all larger ones.",
      bars(bounds, counts, ["sd of the estimate", "tasks"], tip, "Histogram of the sds of the estimates")));
  }
  room.append(...workerPicture(data, show));
  if (calibration) {
    const { pit, nominal, plain, stretched } = calibration;
    const curve = (y, pale, name) => ({ x: nominal, y, pale, tip: (k) => `${name}${percent(nominal[k])} intervals contain ${percent(y[k], 1)} of left-out answers` });
    const list = stretched ? [curve(plain, true, "before stretching: "), curve(stretched, false, "")] : [curve(plain, false, "")];
    const note = stretched ? " Dashed: before the intervals were stretched." : "";
    room.append(picture("Coverage of the intervals", `Share of left-out answers inside their prediction intervals. Dotted: nominal.${note}`,
      curves(list, ["nominal coverage", "observed"], "Coverage of prediction intervals", { xs: [0, 1], ys: [0, 1], diagonal: true, format: percent })));
    const bounds = Array.from({ length: pit.length + 1 }, (_, k) => k / pit.length);
    const tip = (k) => `${percent(bounds[k])} to ${percent(bounds[k + 1])} of the prediction below the answer:\n${brief(pit[k])} times as many answers as expected`;
    room.append(picture("Calibration of the predictions (PIT)", "Flat where predictions are calibrated; high at the ends where they are too narrow, in the middle where too wide.",
      bars(bounds, pit, ["share of the prediction below the answer", "answers / expected"], tip, "Histogram of the probability integral transform", 1)));
  }
  if (trace) {
    const xs = trace.changes.map((_, k) => k + trace.first);
    const ys = trace.changes.map((c) => Math.max(c, 1e-16));
    const [low, high] = [Math.min(...ys), Math.max(...ys)];
    const curve = { x: xs, y: ys, pale: false, tip: (k) => `sweep ${xs[k]}: change ${trace.changes[k].toExponential(1)}` };
    const svg = curves([curve], ["sweep", "change"], "Change of the estimates, sweep by sweep",
      { xs: [1, Math.max(trace.n, 2)], ys: [low / 1.5, high * 1.5], log: true, width: 380 });
    const sweeps = plural(trace.n, "sweep");
    const figure = picture("Convergence", trace.converged ? `Converged after ${sweeps}.` : `Not converged after ${sweeps}: the estimates are approximate.`, svg);
    document.getElementById("trace").append(...figure.childNodes);
  }
}

function workerPicture(data, show) {
  const { workers, names } = data;
  const most = 1500;
  let chosen = workers.id.map((_, u) => u).filter((u) => workers.sd[u] > 0);
  if (chosen.length > most) {
    const rank = (u) => (data.flagsOf(u).length ? Infinity : workers.n[u]);
    chosen = chosen.sort((a, b) => rank(b) - rank(a)).slice(0, most);
  }
  if (chosen.length < 2) return [];
  const biased = workers.bias && names.length === 1;
  chosen.sort((a, b) => workers.sd[a] - workers.sd[b]);
  const list = chosen.map((u, rank) => ({
    x: biased ? workers.bias[0][u] : rank + 1,
    y: workers.sd[u],
    ...(biased ? {} : { low: workers.lower[u], high: workers.upper[u] }),
    flagged: data.flagsOf(u).length,
    tip: [
      workers.id[u],
      `noise sd ${brief(workers.sd[u])} (95 %: ${data.noiseIntervalText(u)})`,
      biased ? `bias ${data.differenceText(workers.bias[0][u], 0)}` : "",
      plural(workers.n[u], "answer"), data.kindsOf(u).join(", "),
    ].filter((line) => line).join("\n"),
    open: () => show.worker(u),
  }));
  const some = workers.id.length > chosen.length ? ` Shown are ${count(chosen.length)}: the flagged and the most active.` : "";
  const text = `${biased ? "Noise against bias." : "Noise with its 95 % interval, least noisy first."} Orange: flagged. Click a dot to see the answers.${some}`;
  const x = biased ? "bias" : "workers, by noise";
  return [picture("Workers", text, dots(list, [x, "noise sd"], `Workers: noise against ${biased ? "bias" : "rank"}`, { logY: true }))];
}

// Columns that all tables of tasks have; with `why` also a sketch of the answers, and the reasons.
function taskColumns(data, why) {
  const { names, tasks, answers } = data;
  const one = names.length === 1;
  const hint = one ? "Standard deviation of the estimate" : "Root of the mean variance of the coordinates";
  const estimates = names.slice(0, 4).map((name, j) => ({
    title: one ? "Estimate" : names.length > 4 && j === 3 ? `${name} …` : name, minor: j > 1,
    value: (i) => tasks.estimate[j][i], cell: (i) => data.estimateText(tasks.estimate[j][i], j),
  }));
  const meanText = (i) => data.vectorText(tasks.mean, i);
  const mean = { title: "Mean", minor: true, hint: "Plain mean of the answers", cell: meanText, ...(one ? { value: (i) => tasks.mean[0][i] } : { csv: meanText }) };
  const columns = [
    { title: "Task", text: true, value: (i) => tasks.id[i] },
    ...estimates,
    ...(one || !why ? [mean] : []),
    { title: "sd", hint, value: (i) => data.taskSd(i), cell: (i) => (data.gold.has(i) ? "gold" : brief(data.taskSd(i))), minor: why && one },
  ];
  if (one) {
    columns.push({ title: "95 % interval", minor: true, value: (i) => tasks.upper[0][i] - tasks.lower[0][i], csv: (i) => data.intervalText(i, 0), cell: (i) => (data.gold.has(i) ? "" : data.intervalText(i, 0)) });
  }
  if (why && one) {
    const at = (i) => ({ estimate: tasks.estimate[0][i], lower: tasks.lower[0][i], upper: tasks.upper[0][i] });
    const dots = (i) => data.edgesOf(i).slice(0, 60).map((e) => ({ x: answers.value[0][e], weight: answers.weight[e], upper: data.upper.has(e) }));
    columns.push({ title: "Answers", minor: true, csv: (i) => data.edgesOf(i).map((e) => data.answerText(answers.value[0][e], 0)).join("; "), cell: (i) => sketch(at(i), dots(i)) });
  }
  if (one && tasks.truth) columns.push({ title: "Truth", minor: true, value: (i) => tasks.truth[0][i], cell: (i) => data.estimateText(tasks.truth[0][i], 0) });
  if (!why && tasks.difficulty) columns.push({ title: "Difficulty", minor: true, hint: "Noise variance on the task, relative to a typical task", value: (i) => tasks.difficulty[i], cell: (i) => brief(tasks.difficulty[i]) });
  columns.push({ title: why ? "Number" : "Answers", hint: "Number of answers", minor: true, value: (i) => tasks.n[i], cell: (i) => count(tasks.n[i]) });
  const reasons = (i) => data.look.get(i) || [];
  const tags = (i) => reasons(i).flatMap((reason) => [element("span", { class: "tag" }, reason), " "]);
  columns.push({ title: why ? "Why" : "Needs a look", text: true, minor: !why, value: (i) => reasons(i).join(", ") || (why ? "" : "\uffff"), csv: (i) => reasons(i).join(", "), cell: tags });
  return columns;
}

function taskListing(data, why) {
  const ids = data.tasks.id.map((id) => id.toLowerCase());
  const columns = taskColumns(data, why);
  const search = (i) => ids[i];
  if (!why) {
    const sort = { column: columns.findIndex((column) => column.title === "sd"), down: true };
    return new Listing({ word: "task", rows: [...ids.keys()], columns, sort, search, link: (i) => data.taskAddress(i), file: "tasks.csv" });
  }
  const rows = [...data.look.keys()];
  const kinds = [...new Set([...data.look.values()].flat())];
  const filters = kinds.map((kind) => ({ title: kind, keep: (i) => data.look.get(i).includes(kind) }));
  return new Listing({ word: "label", rows, columns, search, filters, link: (i) => data.taskAddress(i), file: "needs-a-look.csv", size: 15 });
}

// The workers to talk to, each with the evidence.
function talkList(data) {
  const flagged = [...data.byFlag.keys()];
  const entries = flagged.map((u) => {
    const { workers } = data;
    const evidence = data.flagsOf(u).map(([, kind, words]) => element("p", {}, element("span", { class: "tag" }, kind), `${words}.`));
    const name = element("a", { class: "id", href: data.workerAddress(u) }, workers.id[u]);
    const facts = element("p", { class: "soft" }, `${plural(workers.n[u], "answer")}; each counts ${brief(workers.weight[u])} times as much as the average worker's`);
    return element("li", {}, element("h3", {}, name), ...evidence, facts);
  });
  return element("ul", { class: "people" }, ...entries);
}

function workerListing(data) {
  const { names, workers } = data;
  const search = workers.id.map((id, u) => `${id} ${data.kindsOf(u).join(" ")}`.toLowerCase());
  const bias = (u) => workers.bias.map((column) => column[u]);
  const columns = [
    { title: "Worker", text: true, value: (u) => workers.id[u] },
    { title: "Noise sd", value: (u) => workers.sd[u], cell: (u) => brief(workers.sd[u]) },
    { title: "95 % interval", minor: true, value: (u) => workers.upper[u] - workers.lower[u], csv: (u) => data.noiseIntervalText(u), cell: (u) => data.noiseIntervalText(u) },
  ];
  if (workers.bias) {
    columns.push({ title: "Bias", minor: names.length > 1, value: (u) => (names.length > 1 ? Math.hypot(...bias(u)) : bias(u)[0]), cell: (u) => bias(u).slice(0, 4).map((b, j) => data.differenceText(b, j)).join(", ") });
  }
  columns.push(
    { title: "Weight", hint: "Weight of an answer, relative to the average worker's", value: (u) => workers.weight[u], cell: (u) => brief(workers.weight[u]) },
    { title: "Answers", value: (u) => workers.n[u], cell: (u) => count(workers.n[u]) },
    { title: "Flags", text: true, value: (u) => data.kindsOf(u).join() || "\uffff", csv: (u) => data.kindsOf(u).join(", "), cell: (u) => data.kindsOf(u).map((kind) => element("span", { class: "tag" }, kind)) },
  );
  const filters = data.flags.length ? [{ title: "flagged only", keep: (u) => data.flagsOf(u).length > 0 }] : [];
  return new Listing({ word: "worker", rows: [...search.keys()], columns, sort: { column: columns.length - 3, down: true }, search: (u) => search[u], filters, link: (u) => data.workerAddress(u), file: "workers.csv" });
}

async function start() {
  const dialog = document.getElementById("details");
  const data = new Data(await unpack(document.getElementById("data").textContent));
  // Tips and dots open by their addresses, as rows do.
  const show = {
    task: (i) => go(data.taskAddress(i)),
    worker: (u) => go(data.workerAddress(u)),
  };
  startTips(document.getElementById("tip"), dialog);
  pictures(data, show);
  const { totals, tasks, workers } = data;
  const section = (name) => document.getElementById(name);
  if (data.look.size) section("look").append(taskListing(data, true).node);
  else section("look").remove();
  if (data.byFlag.size) section("talk").append(talkList(data));
  else section("talk").remove();
  for (const link of document.querySelectorAll("nav a")) if (!document.querySelector(link.hash)) link.remove();
  section("tasks").append(
    ...capped(tasks.id.length, totals.tasks, `${count(tasks.id.length)} of ${count(totals.tasks)} tasks are in this file: those that need a look and the most uncertain ones. The figures above, the pictures and tasks.csv cover all tasks.`),
    taskListing(data, false).node,
  );
  section("workers").append(
    ...capped(workers.id.length, totals.workers, `${count(workers.id.length)} of ${count(totals.workers)} workers are in this file: the flagged, those who answered the tasks above, and the most active others.`),
    workerListing(data).node,
  );
  startPrinting();
  const found = (make) => (hash) => {
    const place = data.byAddress.get(hash);
    return place === undefined ? null : () => make(data, place, show);
  };
  new Details(dialog, { task: found(taskDetails), worker: found(workerDetails) });
  document.documentElement.dataset.ready = "yes";
}

start().catch((error) => {
  const failure = document.getElementById("failure");
  failure.textContent = `The tables cannot be shown (${error.message}). This page needs a browser from 2023 or later.`;
  failure.hidden = false;
  throw error;
});
