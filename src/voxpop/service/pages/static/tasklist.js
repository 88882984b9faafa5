// Tasks out of what the owner pasted: one a line, or a table with a line of names.

import { parseNumber } from "./words.js";

const NAMES = ["name", "text", "image", "link", "kind", "truth", "width", "height"];
const KINDS = ["real", "gold", "practice"];
const PICTURE = /^(https?:\/\/\S+|[\w./-]+\.(png|jpe?g|gif|webp|svg)|data:image\/\S+)$/i;
const MOST_SHOWN = 5;

// The rows of a CSV: quoted cells may hold the separator, quotes and line ends.
export function rowsOf(text, separator) {
  const rows = [];
  let [row, cell, quoted] = [[], "", false];
  for (let k = 0; k < text.length; k++) {
    const letter = text[k];
    if (quoted) {
      if (letter !== '"') cell += letter;
      else if (text[k + 1] === '"') {
        cell += '"';
        k += 1;
      } else quoted = false;
    } else if (letter === '"' && !cell) quoted = true;
    else if (letter === separator || letter === "\n") {
      row.push(cell);
      cell = "";
      if (letter === "\n") {
        rows.push(row);
        row = [];
      }
    } else if (letter !== "\r") cell += letter;
  }
  row.push(cell);
  rows.push(row);
  return rows.filter((cells) => cells.some((one) => one.trim()));
}

function separatorOf(head) {
  const counts = [",", ";", "\t"].map((sign) => [head.split(sign).length, sign]);
  return counts.reduce((a, b) => (b[0] > a[0] ? b : a))[1];
}

// A line of names: every cell a name that is known, and one of them says what is shown.
function namesOf(line, separator) {
  const names = rowsOf(line, separator)[0]?.map((cell) => cell.replace(/^\ufeff/, "").trim().toLowerCase()) || [];
  const known = names.filter((name) => NAMES.includes(name));
  return known.some((name) => ["text", "image", "link"].includes(name)) && known.length >= Math.max(1, names.length / 2) ? names : null;
}

// A name as the server takes it: one line, not too long, with room for a number behind it.
function oneLine(text) {
  const plain = text.replace(/[\u0000-\u001f\u007f]+/g, " ").trim();
  return plain.length > 120 ? `${plain.slice(0, 119)}…` : plain;
}

function fromRow(names, cells, number) {
  const given = Object.fromEntries(names.map((name, k) => [name, (cells[k] || "").trim()]));
  const content = {};
  for (const key of ["text", "image", "link"]) if (given[key]) content[key] = given[key];
  for (const key of ["width", "height"]) if (given[key]) content[key] = Number(given[key]);
  if (!content.text && !content.image && !content.link) throw new Error(`row ${number}: give a text, an image or a link`);
  const picture = given.image && !given.image.startsWith("data:") ? given.image : "";
  const task = { name: oneLine(given.name || picture || given.text || `task ${number - 1}`), content };
  const kind = (given.kind || "real").toLowerCase();
  if (!KINDS.includes(kind)) throw new Error(`row ${number}: kind is real, gold or practice, not ${given.kind}`);
  if (kind !== "real") task.kind = kind;
  if (given.truth) {
    task.truth = given.truth.split(/[\s;]+/).map((one) => parseNumber(one));
    if (task.truth.includes(null)) throw new Error(`row ${number}: truth is a number, not ${given.truth}`);
  }
  if (kind !== "real" && !task.truth) throw new Error(`row ${number}: a ${kind} task needs a truth`);
  return task;
}

// The tasks, and what is wrong with the first that is wrong.
export function tasksOf(text) {
  const plain = text.replace(/^\ufeff/, "");
  const head = plain.split("\n").find((line) => line.trim()) || "";
  const separator = separatorOf(head);
  const names = namesOf(head, separator);
  const tasks = [];
  let wrong = null;
  try {
    if (names) rowsOf(plain, separator).slice(1).forEach((cells, k) => tasks.push(fromRow(names, cells, k + 2)));
    else {
      plain.split("\n").map((line) => line.trim()).filter(Boolean).forEach((line, k) => {
        const picture = PICTURE.test(line);
        const name = !picture ? line : line.startsWith("data:") ? `task ${k + 1}` : line.split("/").pop() || line;
        tasks.push({ name: oneLine(name), content: picture ? { image: line } : { text: line } });
      });
    }
  } catch (error) {
    wrong = error.message;
  }
  unique(tasks);
  return { tasks, wrong, shown: tasks.slice(0, MOST_SHOWN) };
}

// Names that occur twice get a number.
function unique(tasks) {
  const seen = new Map();
  for (const task of tasks) {
    const n = (seen.get(task.name) || 0) + 1;
    seen.set(task.name, n);
    if (n > 1) task.name = `${task.name} (${n})`;
  }
}
