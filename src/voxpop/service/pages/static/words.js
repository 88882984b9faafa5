// The words of the page in its language, and numbers as they are written and read in it.

const table = JSON.parse(document.getElementById("words").textContent);
export const language = table.language;

// The words for a key, with the values of {names} put in.
export function t(key, values = {}) {
  return table[key].replace(/\{(\w+)\}/g, (_, name) => values[name]);
}

// Words that count: the key with _1 for one.
export const counted = (key, n) => t(n === 1 && table[`${key}_1`] ? `${key}_1` : key, { n: written(n) });

export function written(x, { grouping = true, decimals = 6 } = {}) {
  return new Intl.NumberFormat(language, { maximumFractionDigits: decimals, useGrouping: grouping }).format(x);
}

// A vector as text: coordinates with a space that no decimal comma is mistaken for.
export const vector = (value) => value.map((x) => written(x, { grouping: false })).join(language === "en" ? ", " : "; ");

// An amount in the smallest unit of a currency.
export function money(amount, currency) {
  const format = new Intl.NumberFormat(language, { style: "currency", currency });
  return format.format(amount / 10 ** format.resolvedOptions().maximumFractionDigits);
}

const decimalSign = (1.5).toLocaleString(language).includes(",") ? "," : ".";

// The number that a text means, or null. Commas and points mean what they do in the
// language: 1.234 is a thousand in German and one and a bit in English; 1,5 and 1.5 are
// clear in both.
export function parseNumber(text, decimal = decimalSign) {
  const plain = text.trim().normalize("NFKC").replace(/[\s'’_]/g, "").replace(/^[−–]/, "-");
  const parts = /^([+-]?)([\d.,]*\d[.,]?)(e[+-]?\d{1,3})?$/i.exec(plain);
  if (!parts) return null;
  const [, sign, digits, power = ""] = parts;
  const signs = [...digits].filter((letter) => letter === "." || letter === ",");
  const lastSign = signs[signs.length - 1];
  let mark = null; // which sign is the decimal one
  if (new Set(signs).size === 2) mark = lastSign;
  else if (signs.length === 1 && !(lastSign !== decimal && /^[1-9]\d{0,2}[.,]\d{3}$/.test(digits))) mark = lastSign;
  const [whole, rest = "", more] = mark ? digits.split(mark) : [digits];
  if (more !== undefined) return null;
  if (/[.,]/.test(whole) && !/^\d{1,3}([.,]\d{3})+$/.test(whole)) return null;
  if (/[.,]/.test(rest)) return null;
  const value = Number(`${sign}${whole.replace(/[.,]/g, "") || "0"}.${rest || "0"}${power}`);
  return Number.isFinite(value) ? value : null;
}
