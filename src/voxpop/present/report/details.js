// The details of one task or one worker, in a dialog whose address can be kept and sent.

// An id as the end of an address: text that is no text (half a character) has no address of its own.
const address = (kind, id) => `#${kind}=${encodeURIComponent(id.toWellFormed ? id.toWellFormed() : id.replace(/[\ud800-\udfff]/g, "\ufffd"))}`;

// Go to an address at once; the event of the browser would come a moment later.
let follow = () => {};
function go(hash) {
  location.hash = hash;
  follow();
}

// The dialog follows the address of the page: Back and Forward work as everywhere.
class Details {
  constructor(dialog, makers) {
    this.dialog = dialog;
    this.makers = makers;
    this.depth = 0;
    this.at = null;
    dialog.addEventListener("close", () => this.closed());
    dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });
    follow = () => this.follow();
    window.addEventListener("hashchange", follow);
    follow();
  }

  // Open what the address names, or close.
  follow() {
    if (this.dialog.open && location.hash === this.at) return;
    const make = this.makers[location.hash.slice(1).split("=")[0]]?.(location.hash);
    if (make) this.open(make);
    else if (this.dialog.open) this.dialog.close();
    this.at = location.hash;
  }

  open(make) {
    const { title, kind, parts } = make();
    this.depth = this.dialog.open ? this.depth + 1 : 1;
    const close = element("button", { type: "button" }, "Close");
    close.addEventListener("click", () => this.dialog.close());
    const buttons = element("div", {});
    if (this.depth > 1) {
      const again = element("button", { type: "button" }, "Back");
      again.addEventListener("click", () => {
        this.depth -= 2;
        history.back();
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

  // The address names nothing any more; Back opens it again.
  closed() {
    if (this.makers[location.hash.slice(1).split("=")[0]]) history.pushState(null, "", "#");
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

// Two camps in words: how many, where, and who.
function campsText(data, i, below, above) {
  const { tasks, answers, workers } = data;
  const camp = (edges) => {
    const means = data.names.slice(0, 4).map((_, j) => data.estimateText(edges.reduce((sum, e) => sum + answers.value[j][e], 0) / edges.length, j));
    const names = edges.slice(0, 6).map((e) => workers.id[answers.worker[e]]).join(", ");
    return `${plural(edges.length, "answer")} about ${means.join(", ")} (${names}${edges.length > 6 ? ", …" : ""})`;
  };
  // Of vectors the camps may differ in any coordinate: only the weights tell then.
  const ends = [Math.max(...below.map((e) => answers.value[0][e])), Math.min(...above.map((e) => answers.value[0][e]))];
  const between = data.names.length === 1 && tasks.estimate[0][i] > ends[0] && tasks.estimate[0][i] < ends[1];
  const upper = above.reduce((sum, e) => sum + answers.weight[e], 0);
  const side = upper > 0.5 ? `the second, which has ${percent(upper)}` : `the first, which has ${percent(1 - upper)}`;
  const follows = between ? "The estimate lies between the two, where nobody answered." : `The estimate follows ${side} of the weight.`;
  return element("p", { class: "camps" }, element("b", {}, "Two camps: "), element("span", {}, camp(below)), " and ", element("span", { class: "upper" }, camp(above)), `. ${follows}`);
}

// What a task shows: a picture, a link or a text. A picture with shapes is drawn below them.
function contentParts(data, [kind, text], shape) {
  if (kind === "text") return [element("blockquote", { class: "content" }, text)];
  if (kind === "picture") {
    return shape ? [] : [element("img", { class: "content", src: data.images[text].data, alt: `The picture of this task, ${text}` })];
  }
  const link = element("a", { href: text, rel: "noreferrer noopener", target: "_blank" }, text);
  if (kind === "link") return [element("p", { class: "content" }, link)];
  const load = element("button", { type: "button" }, `Show the picture (loads it from ${new URL(text).host})`);
  const place = element("p", { class: "content" }, load, " ", link);
  load.addEventListener("click", () => {
    const image = element("img", { class: "content", alt: "The picture of this task", referrerpolicy: "no-referrer", src: text });
    load.replaceWith(image);
  });
  return [place];
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
  const why = data.look.get(i);
  if (why) parts.push(element("p", { class: "why" }, "Needs a look: ", ...why.map((reason) => element("span", { class: "tag" }, reason))));
  parts.push(...capped(tasks.shown[i], tasks.n[i], `${count(tasks.shown[i])} of ${count(tasks.n[i])} answers are in this file: those of the workers with the most weight.`));
  const byWeight = data.edgesOf(i).sort((a, b) => answers.weight[b] - answers.weight[a]);
  const dot = (e, j) => ({
    x: answers.value[j][e],
    value: answers.value.map((column) => column[e]),
    weight: answers.weight[e],
    upper: data.upper.has(e),
    tip: `${workers.id[answers.worker[e]]}: ${data.names.map((_, k) => data.answerText(answers.value[k][e], k)).join(", ")}\nweight ${percent(answers.weight[e])}`,
    open: () => show.worker(answers.worker[e]),
  });
  const [below, above] = [data.edgesOf(i).filter((e) => !data.upper.has(e)), data.edgesOf(i).filter((e) => data.upper.has(e))];
  if (above.length) parts.push(campsText(data, i, below, above));
  const key = `Dots are answers, larger with more weight. Band: 95 % interval; line: estimate; diamond: mean${truth ? "; orange line: truth" : ""}.`;
  const shape = ["xmin,ymin,xmax,ymax", "x,y"].includes(names.join());
  const content = tasks.content[i];
  if (content) parts.push(...contentParts(data, content, shape));
  if (shape) {
    const list = byWeight.map((e) => dot(e, 0)).reverse();
    const estimate = tasks.estimate.map((column) => column[i]);
    parts.push(picture(`${names.length === 4 ? "Boxes" : "Points"} in the image`, `Answers are bolder with more weight. Blue: estimate${truth ? "; orange: truth" : ""}.`,
      plane(list, estimate, truth, `estimate: ${data.vectorText(tasks.estimate, i)}`, content && content[0] === "picture" ? data.images[content[1]] : null)));
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
    word: "answer", rows: byWeight, size: 15, caption: `${plural(tasks.n[i], "answer")}, highest weight first`,
    link: (e) => data.workerAddress(answers.worker[e]),
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
    ["Noise sd", brief(workers.sd[u]), `95 %: ${data.noiseIntervalText(u)}`],
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
    link: (e) => data.taskAddress(data.taskOf(e)),
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
