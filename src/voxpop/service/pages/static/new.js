// The page that makes a campaign: a form, and beside it what workers will see.

import { el } from "./dom.js";
import { example } from "./example.js";
import { attempt, count, minorDigits, owner } from "./owner.js";
import { tasksOf } from "./tasklist.js";
import { taskView } from "./taskview.js";
import { parseNumber } from "./words.js";

const field = (id) => document.getElementById(id);
const form = field("form");
const CHUNK = 1000;
const KINDS = [
  ["number", "Number", "typed into a field"], ["slider", "Slider", "a place on a scale"], ["rating", "Rating", "one of a few steps"],
  ["point", "Point", "a place in an image"], ["box", "Box", "a frame in an image"],
];
const SAMPLE = `data:image/svg+xml,${encodeURIComponent('<svg xmlns="http://www.w3.org/2000/svg" width="480" height="320"><rect width="480" height="320" fill="#cfe3f6"/><rect y="220" width="480" height="100" fill="#7f9a6a"/><circle cx="390" cy="70" r="34" fill="#f5c451"/><path d="M150 220v-70l60-50 60 50v70z" fill="#b5533c"/><rect x="195" y="170" width="30" height="50" fill="#5b2a1e"/></svg>')}`;

const kind = () => form.querySelector('input[name="kind"]:checked').value;
const number = (id) => {
  const text = field(id).value.trim();
  if (!text) return null;
  const x = parseNumber(text);
  if (x === null) throw new Error(`${form.querySelector(`label[for="${id}"]`).textContent}: a number is needed, not ${text}.`);
  return x;
};

function question() {
  const made = { kind: kind(), text: field("text").value.trim() };
  const shown = (id) => !field(id).closest("[data-for]").hidden;
  if (shown("unit") && field("unit").value.trim()) made.unit = field("unit").value.trim();
  for (const id of ["min", "max", "step"]) if (shown(id) && number(id) !== null) made[id] = number(id);
  if (shown("low") && (field("low").value.trim() || field("high").value.trim())) made.labels = [field("low").value.trim(), field("high").value.trim()];
  if (made.kind === "slider" || made.kind === "rating") {
    made.min ??= made.kind === "slider" ? 0 : 1;
    made.max ??= made.kind === "slider" ? 100 : 5;
  }
  if (made.min !== undefined && made.max !== undefined && made.min >= made.max) throw new Error("The lowest value must be below the highest.");
  return made;
}

function money(id) {
  const x = number(id);
  if (x === null) return null;
  if (x < 0) throw new Error("Money cannot be negative.");
  return Math.round(x * 10 ** minorDigits(field("currency").value));
}

function campaign(tasks) {
  const title = field("title").value.trim();
  if (!title) throw new Error("Give a title.");
  if (!field("text").value.trim()) throw new Error("Write the question.");
  if (!tasks.some((task) => !task.kind)) throw new Error("Add at least one task.");
  const asked = question();
  if ((asked.kind === "point" || asked.kind === "box") && tasks.some((task) => !task.content.image)) throw new Error(`A ${asked.kind} needs an image in every task.`);
  const rules = { price: money("price") ?? 0, currency: field("currency").value, language: field("language").value, practice: tasks.filter((task) => task.kind === "practice").length };
  if (number("half") !== null) rules.half_width = number("half");
  if (number("most") !== null) rules.answers_per_task = number("most");
  if (number("capacity") !== null) rules.capacity = number("capacity");
  return { title, instructions: field("instructions").value.trim(), question: asked, rules, budget: money("budget") };
}

async function make() {
  const { tasks, wrong } = tasksOf(field("tasks").value);
  if (wrong) throw new Error(`Tasks: ${wrong}.`);
  const body = campaign(tasks);
  field("make").disabled = true;
  const done = await attempt(async () => {
    const { slug } = await owner("POST", "/campaigns", body);
    const path = `/campaigns/${encodeURIComponent(slug)}`;
    for (let first = 0; first < tasks.length; first += CHUNK) {
      field("making").textContent = `${count(first)} of ${count(tasks.length)} tasks …`;
      await owner("POST", `${path}/tasks`, tasks.slice(first, first + CHUNK), { "Idempotency-Key": `new-${slug}-${first}` });
    }
    await owner("PATCH", path, { state: "open" });
    location.assign(`/owner/${encodeURIComponent(slug)}`);
    return slug;
  });
  if (done === null) field("make").disabled = false;
}

function refreshTasks() {
  const { tasks, wrong, shown } = tasksOf(field("tasks").value);
  const numberOf = (name) => tasks.filter((task) => (task.kind || "real") === name).length;
  const parts = [];
  if (tasks.length) {
    const more = ["gold", "practice"].filter(numberOf).map((name) => `${numberOf(name)} ${name}`);
    parts.push(el("p", {}, el("b", {}, `${count(tasks.length)} task${tasks.length === 1 ? "" : "s"}`), more.length ? ` (${more.join(", ")})` : ""));
    const cut = (text) => (text.length > 60 ? `${text.slice(0, 57)}…` : text);
    const rows = shown.map((task) => el("tr", {}, el("td", {}, cut(task.name)), el("td", {}, task.content.image ? "image" : cut(task.content.text || task.content.link)), el("td", {}, task.kind || "real")));
    parts.push(el("div", { class: "wide" }, el("table", { class: "plain" }, el("thead", {}, el("tr", {}, ...["Name", "Shows", "Kind"].map((name) => el("th", { scope: "col" }, name)))), el("tbody", {}, ...rows))));
    if (tasks.length > shown.length) parts.push(el("p", { class: "soft" }, `and ${count(tasks.length - shown.length)} more`));
  }
  if (wrong) parts.push(el("p", { class: "wrong" }, `${wrong[0].toUpperCase()}${wrong.slice(1)}.`));
  field("found").replaceChildren(...parts);
  return tasks;
}

function refresh() {
  const chosen = kind();
  for (const part of form.querySelectorAll("[data-for]")) part.hidden = !part.dataset.for.split(" ").includes(chosen);
  field("min").placeholder = chosen === "slider" ? "0" : chosen === "rating" ? "1" : "none";
  field("max").placeholder = chosen === "slider" ? "100" : chosen === "rating" ? "5" : "none";
  const tasks = refreshTasks();
  const task = tasks.find((one) => !one.kind) || tasks[0];
  let asked;
  try {
    asked = question();
    field("wrong").textContent = "";
  } catch (error) {
    field("wrong").textContent = error.message;
    return;
  }
  const image = chosen === "point" || chosen === "box";
  const content = task && (!image || task.content.image) ? task.content : image ? { image: SAMPLE } : { text: "The text or the image of a task appears here." };
  field("which").textContent = task ? task.name.slice(0, 40) : "";
  const { node } = taskView({ ...asked, text: asked.text || "Your question" }, content);
  field("preview").replaceChildren(node);
}

function fillExample() {
  const { kind: chosen, ...texts } = example();
  form.querySelector(`input[name="kind"][value="${chosen}"]`).checked = true;
  for (const [id, text] of Object.entries(texts)) field(id).value = text;
  refresh();
  field("make").scrollIntoView({ block: "center" });
  field("make").focus({ preventScroll: true });
}

field("kinds").append(...KINDS.map(([value, name, text], k) => {
  const input = el("input", { type: "radio", name: "kind", value, "aria-label": `${name}: ${text}` });
  input.checked = k === 0;
  return el("label", { class: "kind" }, input, el("span", { "aria-hidden": "true" }, el("b", {}, name), el("small", {}, text)));
}));
let pause = null;
form.addEventListener("input", () => {
  clearTimeout(pause);
  pause = setTimeout(refresh, 200);
});
form.addEventListener("submit", (event) => {
  event.preventDefault();
  make().catch((error) => {
    field("wrong").textContent = error.message;
    field("make").disabled = false;
  });
});
field("file").addEventListener("change", async (event) => {
  const [file] = event.target.files;
  if (!file) return;
  field("tasks").value = await file.text();
  refresh();
});
field("example").addEventListener("click", fillExample);
refresh();
if (location.hash === "#example") fillExample();
document.documentElement.dataset.ready = "yes";
