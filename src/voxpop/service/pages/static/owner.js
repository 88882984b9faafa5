// What the owner's pages share: requests with the session's token against forgery, numbers, and notices.

import { Offline, Problem, request } from "./api.js";
import { el } from "./dom.js";

const [MOST, PAGE] = [2000, 500];
const csrf = document.querySelector('meta[name="csrf"]').content;

export async function owner(method, path, body, headers = {}) {
  const sent = method === "GET" ? headers : { "X-CSRF-Token": csrf, ...headers };
  try {
    return await request(method, path, { body, headers: sent });
  } catch (error) {
    if (error instanceof Problem && error.status === 401) location.assign("/"); // the session is over
    throw error;
  }
}

// The rows of a list, page after page, and how many there are.
export async function rowsOf(path) {
  const rows = [];
  let [cursor, total] = [null, null];
  do {
    const page = await owner("GET", `${path}${path.includes("?") ? "&" : "?"}limit=${PAGE}${cursor ? `&cursor=${encodeURIComponent(cursor)}` : ""}`);
    rows.push(...page.rows);
    cursor = page.next;
    total = page.total ?? total;
  } while (cursor && rows.length < MOST);
  return { rows, total: total ?? rows.length };
}

export const count = (n) => n.toLocaleString("en");

export function money(amount, currency) {
  try {
    const format = new Intl.NumberFormat("en", { style: "currency", currency });
    return format.format(amount / 10 ** format.resolvedOptions().maximumFractionDigits);
  } catch {
    return `${(amount / 100).toFixed(2)} ${currency}`; // no currency that the browser knows
  }
}

export const minorDigits = (currency) => new Intl.NumberFormat("en", { style: "currency", currency }).resolvedOptions().maximumFractionDigits;

const notice = document.getElementById("notice");
let timer = null;
export function say(text, ms = 5000) {
  clearTimeout(timer);
  notice.replaceChildren(...(text ? [el("p", {}, text)] : []));
  if (text) timer = setTimeout(() => notice.replaceChildren(), ms);
}

// Run an action of the owner; what goes wrong is said.
export async function attempt(action) {
  try {
    return await action();
  } catch (error) {
    if (error instanceof Offline) say("The server cannot be reached. Nothing was changed.", 8000);
    else if (error instanceof Problem) say(error.detail, 8000);
    else throw error;
    return null;
  }
}

export const pill = (state) => el("span", { class: `pill ${state}` }, state);
