// One task, answer by answer, in a dialog.
/* global brief, facts, Listing, picture, plane, plural, strip, weightCell */

import { el, pictureAddress } from "./dom.js";
import { markdown } from "./markdown.js";
import { owner, attempt } from "./owner.js";
import { COORDINATES, estimateText, workerAddress } from "./texts.js";

// A box by its corners, as pictures of boxes are drawn.
const corners = (kind, value) => (kind === "box" ? [value[0], value[1], value[0] + value[2], value[1] + value[3]] : value);

function shownContent(content = {}, onImage) {
  const parts = [];
  if (content.text) parts.push(el("blockquote", { class: "content" }, markdown(content.text)));
  const source = content.image && !onImage && pictureAddress(content.image);
  if (source) parts.push(el("img", { class: "content", src: source, alt: "The image of this task", referrerpolicy: "no-referrer" }));
  return parts;
}

async function sized(content) {
  const source = content?.image && pictureAddress(content.image);
  if (!source) return null;
  const image = el("img", { src: source, referrerpolicy: "no-referrer", alt: "" });
  try {
    await image.decode();
  } catch {
    return null;
  }
  return { data: source, size: [content.width || image.naturalWidth || 300, content.height || image.naturalHeight || 200] };
}

async function fill(room, told, question, row) {
  const names = COORDINATES[question.kind] || [question.unit || "value"];
  const content = told.content || row?.content;
  const onImage = names.length > 1;
  const parts = [];
  const at = (list, j) => (list ? list[j] : null);
  parts.push(facts(names.map((name, j) => [onImage ? name : "Estimate", estimateText(at(told.estimate, j), at(told.sd, j)), Number.isFinite(at(told.lower_95, j)) ? `95 %: ${estimateText(told.lower_95[j], at(told.sd, j))} to ${estimateText(told.upper_95[j], at(told.sd, j))}` : null])));
  if (row?.needs_a_look) parts.push(el("p", { class: "why" }, "Needs a look: ", el("span", { class: "tag" }, row.reason || "needs a look")));
  parts.push(...shownContent(content, onImage));
  const answers = [...told.answers].sort((a, b) => (b.weight ?? 0) - (a.weight ?? 0));
  const dot = (answer, j) => ({
    x: answer.value[j], value: corners(question.kind, answer.value), weight: answer.weight ?? 0.5,
    tip: `${answer.worker}: ${answer.value.map((x) => brief(x)).join(", ")}${answer.weight === undefined || answer.weight === null ? "" : `\nweight ${(100 * answer.weight).toFixed(0)} %`}`,
  });
  if (onImage && told.estimate) {
    parts.push(picture(question.kind === "box" ? "Boxes in the image" : "Points in the image", `Bolder with more weight. Blue: estimate.${told.truth ? " Orange: the known truth." : ""}`,
      plane(answers.map((answer) => dot(answer, 0)).reverse(), corners(question.kind, told.estimate), told.truth && corners(question.kind, told.truth), "estimate", await sized(content))));
  }
  if (told.estimate && answers.length) {
    names.forEach((name, j) => {
      const mean = answers.reduce((sum, answer) => sum + answer.value[j], 0) / answers.length;
      const place = { estimate: told.estimate[j], lower: at(told.lower_95, j) ?? told.estimate[j], upper: at(told.upper_95, j) ?? told.estimate[j], mean, truth: at(told.truth, j) };
      const caption = j === 0 ? [el("figcaption", {}, "Dots are answers, larger with more weight. Band: 95 % interval; line: estimate; diamond: mean.")] : [];
      parts.push(el("figure", { class: "picture" }, ...caption, strip(name, place, answers.map((answer) => dot(answer, j)), (x) => estimateText(x, at(told.sd, j)))));
    });
  }
  if (answers.length) {
    parts.push(new Listing({
      word: "answer", rows: [...answers.keys()], size: 15, caption: `${plural(answers.length, "answer")}, heaviest first`, link: (e) => workerAddress(answers[e].worker),
      columns: [
        { title: "Worker", text: true, value: (e) => answers[e].worker },
        ...names.map((name, j) => ({ title: onImage ? name : "Answer", value: (e) => answers[e].value[j], cell: (e) => brief(answers[e].value[j]) })),
        { title: "Weight", value: (e) => answers[e].weight ?? 0, cell: (e) => (Number.isFinite(answers[e].weight) ? weightCell(answers[e].weight) : "–") },
      ],
    }).node);
  } else parts.push(el("p", { class: "none" }, "Nobody has answered this task yet."));
  room.replaceChildren(...parts);
}

export function explainTask(base, name, question, row) {
  const room = el("div", {}, el("p", { class: "none" }, "Loading …"));
  attempt(() => owner("GET", `${base}/explain?task=${encodeURIComponent(name)}`)).then((told) => {
    if (told) return fill(room, told, question, row);
    room.replaceChildren(el("p", { class: "none" }, "There is nothing to explain yet: estimates appear with the first answers."), ...shownContent(row?.content, false));
    return null;
  });
  return { kind: "Task", title: name, parts: [room] };
}
