// One task: what it shows, its question and the control for the answer.

import { el, fresh, pictureAddress, webAddress } from "./dom.js";
import { control, onImage } from "./kinds/kinds.js";
import { markdown } from "./markdown.js";
import { Stage } from "./stage.js";
import { t } from "./words.js";

// The picture is the task's own, or the question's where all tasks share one.
function pictureOf(question, content) {
  const found = content[question.image || "image"] || content.image;
  return found ? { ...content, image: found } : null;
}

export function taskView(question, content, { changed = () => {}, submit = () => {} } = {}) {
  const picture = pictureOf(question, content);
  const marking = onImage(question.kind);
  const given = control(question, picture || content, changed, submit);
  const title = fresh("question");
  const parts = [];
  if (picture && !marking) parts.push(new Stage(picture, t("image_of_task")).node);
  if (content.text) parts.push(el("div", { class: "task-text" }, markdown(content.text)));
  const link = content.link && webAddress(content.link);
  if (link) parts.push(el("p", { class: "task-link" }, el("a", { href: link, target: "_blank", rel: "noreferrer noopener" }, t("open_link")), el("span", { class: "soft" }, ` ${new URL(link).host}`)));
  const node = el("section", { class: `task ${marking ? "marking" : picture ? "with-picture" : "plain"}`, "aria-labelledby": title },
    parts.length ? el("div", { class: "shown" }, ...parts) : null,
    el("div", { class: "asked" }, el("h2", { id: title, class: "question", tabindex: "-1" }, question.text || t("your_answer")), given.node));
  // Where what sends the answer stands: beside a picture, or below.
  const place = given.side || node.querySelector(".asked");
  return { node, control: given, place, heading: node.querySelector(".question") };
}

// Load the picture of a task before it is shown, so that it does not come in late; wait for it only a moment.
export function preload(question, content) {
  const found = pictureOf(question, content);
  const address = found && pictureAddress(found.image);
  if (!address) return Promise.resolve();
  const image = Object.assign(new Image(), { referrerPolicy: "no-referrer", src: address });
  const soon = new Promise((resolve) => { setTimeout(resolve, 1200); });
  return Promise.race([image.decode().catch(() => {}), soon]);
}
