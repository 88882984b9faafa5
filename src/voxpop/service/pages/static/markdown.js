// A subset of Markdown, made of elements: paragraphs, # headings, lists, **bold**, *emphasis*, `code` and
// [links](https://…). Everything else, HTML above all, is shown as it is written.

import { el, webAddress } from "./dom.js";

const INLINE = /(`[^`\n]+`)|(\*\*(?=\S)[^*]+?\*\*)|(\*(?=\S)[^*\n]+?\*)|(\[[^\]\n]+\]\([^()\s]+\))/;

function inline(text) {
  const found = INLINE.exec(text);
  if (!found) return text ? [text] : [];
  const [whole, code, bold, emphasis, link] = found;
  let made;
  if (code) made = el("code", {}, code.slice(1, -1));
  else if (bold) made = el("strong", {}, ...inline(bold.slice(2, -2)));
  else if (emphasis) made = el("em", {}, ...inline(emphasis.slice(1, -1)));
  else {
    const [, name, target] = /^\[(.+)\]\((.+)\)$/.exec(link);
    const address = /^https?:/i.test(target) ? webAddress(target) : null;
    made = address ? el("a", { href: address, target: "_blank", rel: "noreferrer noopener" }, name) : whole;
  }
  return [...inline(text.slice(0, found.index)), made, ...inline(text.slice(found.index + whole.length))];
}

// Lines of a paragraph stay lines.
function lines(list) {
  return list.flatMap((line, k) => (k ? [el("br"), ...inline(line)] : inline(line)));
}

function block(list) {
  const bullets = list.every((line) => /^\s*[-*•]\s+/.test(line));
  const numbers = list.every((line) => /^\s*\d{1,3}[.)]\s+/.test(line));
  if (bullets || numbers) {
    const items = list.map((line) => el("li", {}, ...inline(line.replace(/^\s*([-*•]|\d{1,3}[.)])\s+/, ""))));
    return el(bullets ? "ul" : "ol", {}, ...items);
  }
  return el("p", {}, ...lines(list));
}

// The kind of a line: lists and headings begin blocks of their own.
function sort(line) {
  if (/^\s*[-*•]\s+/.test(line)) return "bullet";
  if (/^\s*\d{1,3}[.)]\s+/.test(line)) return "number";
  return /^#{1,4}\s+/.test(line) ? "heading" : "text";
}

export function markdown(text, heading = 3) {
  const room = el("div", { class: "prose" });
  let open = [];
  const close = () => {
    if (open.length) room.append(block(open));
    open = [];
  };
  for (const line of text.replace(/\r\n?/g, "\n").split("\n")) {
    const kind = sort(line);
    if (!line.trim() || kind === "heading" || (open.length && kind !== sort(open[0]))) close();
    if (kind === "heading") room.append(el(`h${heading}`, {}, ...inline(line.replace(/^#+\s+/, ""))));
    else if (line.trim()) open.push(line);
  }
  close();
  return room;
}
