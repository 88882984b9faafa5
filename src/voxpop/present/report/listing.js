// Tables to sort, search, filter, save and page through.

const listings = [];

// A table over `rows` (indices): columns are { title, value, cell, csv, text, minor, hint }, where
// `value` sorts, `cell`, by default the value, is shown, and `csv`, by default the value, is saved.
// The first column opens a row where `link` gives its address. `filters` are { title, keep }: rows
// are shown that one of those pressed keeps. Only one page of rows is in the document at a time,
// but on paper all of them.
class Listing {
  constructor({ word, rows, columns, size = 25, sort = null, search = null, filters = [], link = null, caption = null, file = null }) {
    Object.assign(this, { word, all: rows, rows, columns, size, link, search, filters, file, page: 0 });
    this.needle = "";
    this.pressed = new Set();
    this.sorted = sort || { column: null, down: false };
    this.node = element("div", { class: "list" });
    if (search || filters.length || file) this.node.append(this.tools());
    this.head = element("tr");
    columns.forEach((column, k) => this.head.append(this.heading(column, k)));
    this.body = element("tbody");
    const table = element("table", {}, element("thead", {}, this.head), this.body);
    if (caption) table.prepend(element("caption", {}, caption));
    this.pager = element("div", { class: "pager" });
    this.node.append(element("div", { class: "wide" }, table), this.pager);
    this.body.addEventListener("click", (event) => this.clicked(event));
    this.body.addEventListener("keydown", (event) => this.moved(event));
    this.refresh();
    listings.push(new WeakRef(this));
  }

  tools() {
    const bar = element("div", { class: "tools" });
    if (this.search) {
      const name = `Search ${this.word}s`;
      const box = element("input", { type: "search", placeholder: name, "aria-label": name, autocomplete: "off", spellcheck: "false" });
      box.addEventListener("input", () => {
        this.needle = box.value.trim().toLowerCase();
        this.refresh();
      });
      bar.append(box);
    }
    for (const filter of this.filters) {
      const n = this.all.filter(filter.keep).length;
      const chip = element("button", { type: "button", class: "chip", "aria-pressed": "false" }, filter.title, element("span", { class: "n" }, count(n)));
      chip.addEventListener("click", () => {
        const on = !this.pressed.delete(filter) && this.pressed.add(filter);
        chip.setAttribute("aria-pressed", String(Boolean(on)));
        this.refresh();
      });
      bar.append(chip);
    }
    this.status = element("span", { class: "status", role: "status" });
    bar.append(this.status);
    if (this.file) {
      const button = element("button", { type: "button", class: "save" }, "Save as CSV");
      button.title = "The rows that are shown here, on all pages, in this order";
      button.addEventListener("click", () => this.save());
      bar.append(button);
    }
    return bar;
  }

  heading(column, k) {
    const head = element("th", { scope: "col", class: classes(column) });
    if (!column.value) {
      head.append(column.title);
      return head;
    }
    const button = element("button", { type: "button" }, column.title);
    if (column.hint) button.title = column.hint;
    button.addEventListener("click", () => {
      const same = this.sorted.column === k;
      // Names start at A, numbers at the largest.
      this.sorted = { column: k, down: same ? !this.sorted.down : !column.text };
      this.refresh();
    });
    head.append(button);
    return head;
  }

  refresh() {
    const pressed = [...this.pressed];
    this.rows = this.all.filter(
      (i) => (!this.needle || this.search(i).includes(this.needle)) && (!pressed.length || pressed.some((filter) => filter.keep(i))),
    );
    const { column, down } = this.sorted;
    if (column !== null) {
      const { value, text } = this.columns[column];
      const keys = new Map(this.rows.map((i) => [i, value(i)]));
      const order = text ? collator.compare : (a, b) => (a ?? -Infinity) - (b ?? -Infinity) || 0;
      this.rows.sort((a, b) => (down ? -1 : 1) * order(keys.get(a), keys.get(b)) || a - b);
    }
    [...this.head.children].forEach((head, k) => {
      if (k === column) head.setAttribute("aria-sort", down ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    });
    if (this.status) {
      const some = this.rows.length < this.all.length;
      this.status.textContent = some ? `${count(this.rows.length)} of ${plural(this.all.length, this.word)}` : "";
    }
    this.show(0);
  }

  show(page, size = this.size) {
    const pages = Math.max(Math.ceil(this.rows.length / size), 1);
    const at = Math.min(Math.max(page, 0), pages - 1);
    if (size === this.size) this.page = at; // on paper it is not turned
    const first = at * size;
    const shown = this.rows.slice(first, first + size);
    this.body.replaceChildren(...shown.map((i) => this.row(i)));
    if (!shown.length) {
      const none = element("td", { colspan: this.columns.length, class: "none text" }, `No matching ${this.word}s.`);
      this.body.append(element("tr", {}, none));
    }
    const turn = (text, to, label) => {
      const button = element("button", { type: "button", "aria-label": label }, text);
      button.disabled = to < 0 || to >= pages;
      button.addEventListener("click", () => {
        this.show(to);
        const same = this.pager.querySelector(`[aria-label="${label}"]`);
        (same.disabled ? this.pager.querySelector("button:enabled") : same)?.focus();
      });
      return button;
    };
    const text = `${count(first + 1)}–${count(first + shown.length)} of ${count(this.rows.length)}`;
    const parts = pages > 1 ? [turn("‹", at - 1, `Previous ${this.word}s`), text, turn("›", at + 1, `Next ${this.word}s`)] : [];
    this.pager.replaceChildren(...parts);
  }

  row(i) {
    const row = element("tr", this.link ? { class: "opens" } : {});
    this.columns.forEach((column, k) => {
      const cell = element("td", { class: classes(column) });
      const content = (column.cell || column.value)(i);
      if (k === 0 && this.link) cell.append(element("a", { class: "link id", href: this.link(i) }, content));
      else cell.append(...[content].flat());
      row.append(cell);
    });
    row.dataset.row = i;
    return row;
  }

  clicked(event) {
    const row = event.target.closest("tr.opens");
    // A click with a key held, on a link, opens a tab or a window of its own.
    if (!row || String(getSelection()) || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    go(this.link(Number(row.dataset.row)));
  }

  moved(event) {
    const step = { ArrowDown: "nextElementSibling", ArrowUp: "previousElementSibling" }[event.key];
    const next = step && event.target.closest("tr")?.[step]?.querySelector("a.link");
    if (!next) return;
    event.preventDefault();
    next.focus();
  }

  save() {
    const kept = this.columns.filter((column) => column.csv || column.value);
    const lines = [kept.map((column) => column.title), ...this.rows.map((i) => kept.map((column) => (column.csv || column.value)(i)))];
    const text = lines.map((line) => line.map(csvCell).join(",")).join("\r\n") + "\r\n";
    const address = URL.createObjectURL(new Blob(["\ufeff", text], { type: "text/csv" }));
    element("a", { href: address, download: this.file }).click();
    setTimeout(() => URL.revokeObjectURL(address), 10_000);
  }
}

// A cell of a CSV; what a spreadsheet would run as a formula is marked by an apostrophe.
function csvCell(item) {
  if (item === null || item === undefined) return "";
  if (typeof item === "number") return String(item);
  const text = /^'*[=+\-@\t\r\n]/.test(item) ? `'${item}` : item;
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

const collator = new Intl.Collator("en", { numeric: true, sensitivity: "base" });

function classes(column) {
  return [column.text ? "text" : "", column.minor ? "minor" : ""].join(" ").trim();
}

// On paper all rows are shown; on the screen a page of them again.
function startPrinting() {
  const print = (all) => {
    for (const listing of listings.map((reference) => reference.deref())) {
      if (listing) listing.show(all ? 0 : listing.page, all ? Math.max(listing.rows.length, 1) : listing.size);
    }
  };
  window.addEventListener("beforeprint", () => print(true));
  window.addEventListener("afterprint", () => print(false));
}
