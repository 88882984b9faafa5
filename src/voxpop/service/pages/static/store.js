// What a page remembers on this device, by campaign. Where the browser forbids it (in some frames), only as
// long as the page is open.

export class Store {
  constructor(slug) {
    this.prefix = `voxpop:${slug}:`;
    this.memory = new Map();
    try {
      const probe = `${this.prefix}probe`;
      localStorage.setItem(probe, "1");
      localStorage.removeItem(probe);
      this.lasting = localStorage;
    } catch {
      this.lasting = null;
    }
  }

  get(name) {
    const text = this.lasting ? this.lasting.getItem(this.prefix + name) : this.memory.get(name);
    try {
      return text ? JSON.parse(text) : null;
    } catch {
      return null;
    }
  }

  set(name, value) {
    const text = JSON.stringify(value);
    this.memory.set(name, text);
    try {
      this.lasting?.setItem(this.prefix + name, text);
    } catch {
      this.lasting = null; // full: go on without
    }
  }

  drop(name) {
    this.memory.delete(name);
    this.lasting?.removeItem(this.prefix + name);
  }
}
