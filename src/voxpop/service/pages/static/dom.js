// Elements. Text from outside enters a page as text only: nothing here parses HTML.

export function el(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key === "class") made.className = value;
    else if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (value === true) made.setAttribute(key, "");
    else if (value !== false && value !== null && value !== undefined) made.setAttribute(key, value);
  }
  made.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return made;
}

export function svg(name, attributes = {}) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}

let last = 0;
// An id that no other element has: labels and hints point to it.
export const fresh = (word) => `${word}-${(last += 1)}`;

// An address that may be followed: of the web, or of this server; null for any other.
export function webAddress(text) {
  try {
    const url = new URL(text, location.href);
    return ["http:", "https:"].includes(url.protocol) ? url.href : null;
  } catch {
    return null;
  }
}

// An address of a picture: also one that is written out in full.
export function pictureAddress(text) {
  return /^data:image\/(png|jpeg|gif|webp|svg\+xml|avif)[;,]/i.test(text) ? text : webAddress(text);
}

// Copy a text, and say so on the button for a moment.
export async function copy(text, button, done) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const field = el("textarea", { class: "offscreen", "aria-hidden": "true" });
    field.value = text;
    button.after(field);
    field.select();
    document.execCommand("copy");
    field.remove();
  }
  const before = button.textContent;
  button.textContent = done;
  setTimeout(() => { button.textContent = before; }, 1800);
}
