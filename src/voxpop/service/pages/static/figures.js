// The decision as tiles, and what the answers have bought as pictures.
/* global brief, curves, picture, plural, shape */

import { el } from "./dom.js";
import { count } from "./owner.js";

export function progressBar({ n_tasks: n, ready, n_done: done }) {
  const share = n ? (100 * (ready ?? done ?? 0)) / n : 0;
  const bar = shape("svg", { class: "progress", viewBox: "0 0 100 2", preserveAspectRatio: "none", role: "img", "aria-label": `${share.toFixed(0)} % of the tasks are ready` });
  bar.append(shape("rect", { class: "rest", width: 100, height: 2 }), shape("rect", { class: "done", width: share, height: 2 }));
  return bar;
}

function tile(kind, figure, unit, text, link = null) {
  const inner = [el("span", { class: "figure" }, figure), " ", el("span", { class: "unit" }, unit)];
  return el("li", { class: `tile ${kind}` }, el("p", {}, ...(link ? [el("a", { href: link }, ...inner)] : inner)), el("p", { class: "text" }, text));
}

// Before the noise is learned, no worker was tested.
export const tested = ({ expected_rmse: rmse, workers_to_talk_to: n }) => rmse > 0 && Number.isFinite(n);

// `why` counts the reasons to look, as far as they are known.
export function tiles(summary, why = []) {
  const { n_tasks: n = 0, n_answers: answers = 0, workers_to_talk_to: talkTo, need_a_look: look = 0, expected_rmse: rmse, next } = summary;
  const ready = summary.ready ?? summary.n_done ?? 0;
  const done = summary.n_done ? ` ${count(summary.n_done)} meet the stop rule.` : "";
  const made = [
    tile("ready", count(ready), ready === 1 ? "task ready" : "tasks ready", !n ? "There are no tasks yet." : ready ? `${((100 * ready) / n).toFixed(0)} % of ${count(n)}: take them as they are.${done}` : `None of ${count(n)} is accurate enough yet.${done}`, "#tasks"),
    tile("look", count(look), look === 1 ? "needs a look" : "need a look", look ? `${why.map(([reason, n]) => `${reason} ${count(n)}`).join(" · ") || "Open them below"}.` : answers ? "No task stands out." : "Nothing to look at yet.", look ? "#tasks" : null),
  ];
  if (!tested(summary)) made.push(tile("talk", "–", "workers not tested yet", "Workers are tested when there are more answers."));
  else made.push(tile("talk", count(talkTo), talkTo === 1 ? "worker to talk to" : "workers to talk to", talkTo ? "Ask them before you judge." : "No worker stands out.", talkTo ? "#talk" : null));
  if (next?.rmse_after > 0 && rmse > 0) {
    const less = Math.max(0, 100 * (1 - next.rmse_after / rmse));
    const where = next.tasks ? `Spent on the ${plural(next.tasks, "task")} where they help most, they` : "They";
    made.push(tile("next", `${less.toFixed(0)} %`, `less error for the next ${count(next.n_answers)} answers`, `${where} would reduce the expected error from ${brief(rmse)} to ${brief(next.rmse_after)}.`, "#progress"));
  } else if (rmse > 0 && next?.tasks === 0) made.push(tile("next", "–", "no further answers needed", "Every task has the answers that the rules ask for."));
  else made.push(tile("next", "–", "for the next 100 answers", "The effect of more answers is known after about two answers per task."));
  return made;
}

// Points of the history that can be drawn: finite, and in order.
function series(history, column) {
  const rows = history.filter((row) => Number.isFinite(row[column]));
  return { x: rows.map((row) => row[0]), y: rows.map((row) => row[column]) };
}

const DASHED = " Dashed: as many answers, the same number for every task.";

export function pictures(summary) {
  const history = (summary.history || []).filter((row) => row[0] > 0);
  // Of a few answers there is nothing to see yet.
  if (history.length < 2 || history.at(-1)[0] < 20) {
    return [el("p", { class: "none" }, "Two charts appear here as answers come in: tasks done and the expected error, each compared with buying the same number of answers for every task.")];
  }
  const most = history[history.length - 1][0];
  const done = { ...series(history, 1), pale: false };
  const even = { ...series(history, 4), pale: true };
  const tip = (curve, word) => Object.assign(curve, { tip: (k) => `${count(curve.x[k])} answers\n${word(curve.y[k])}` });
  tip(done, (y) => `${plural(y, "task")} done`);
  tip(even, (y) => `${plural(Math.round(y), "task")} done with the same number for every task`);
  const top = Math.max(...done.y, ...even.y, 1) * 1.05;
  const made = [picture("Tasks done", `Of ${count(summary.n_tasks)}, against the answers bought.${even.x.length > 1 ? DASHED : ""}`,
    curves([...(even.x.length > 1 ? [even] : []), done], ["answers bought", "tasks done"], "Tasks done against answers bought", { xs: [0, most], ys: [0, top] }))];
  const ours = tip({ ...series(history, 2), pale: false }, (y) => `expected error ${brief(y)}`);
  const plain = tip({ ...series(history, 3), pale: true }, (y) => `expected error ${brief(y)} with the same number for every task`);
  if (ours.x.length > 1) {
    const high = Math.max(...ours.y, ...plain.y) * 1.05;
    made.push(picture("Expected error", `Root mean squared error of all estimates.${plain.x.length > 1 ? DASHED : ""}`,
      curves([...(plain.x.length > 1 ? [plain] : []), ours], ["answers bought", "expected error"], "Expected error against answers bought", { xs: [ours.x[0], most], ys: [0, high] })));
  }
  return made;
}

// What the model says in words: the stop rule, the coverage, the model.
export function sentences({ stop, coverage, model }) {
  return [["Stop rule", stop], ["Coverage", coverage], ["Model", model]].filter(([, text]) => text).map(([name, text]) => el("li", {}, el("b", {}, name), el("span", {}, sentence(text))));
}

function sentence(text) {
  const begun = text[0].toUpperCase() + text.slice(1);
  return /[.!?]$/.test(begun) ? begun : `${begun}.`;
}
