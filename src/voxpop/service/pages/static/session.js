// A worker's session with the server: entering, and requests with the worker's token.

import { persistently, Problem, request } from "./api.js";

// Who sends this worker, by the parameters of the address.
export function providerOf(parameters) {
  if (parameters.PROLIFIC_PID) return "prolific";
  if (parameters.assignmentId && (parameters.hitId || parameters.turkSubmitTo || parameters.workerId)) return "mturk";
  return "link";
}

export class Session {
  constructor(slug, store, told) {
    Object.assign(this, { slug, store, told, token: null });
    const fragment = Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
    this.parameters = { ...Object.fromEntries(new URLSearchParams(location.search)), ...fragment };
  }

  async enter() {
    const { invite, ...params } = this.parameters;
    const body = { provider: providerOf(params), params };
    if (invite) body.invite = invite;
    // A worker whom a platform sends is whoever the platform says; one with a link is who came before.
    const before = body.provider === "link" ? this.store.get("token") : null;
    if (before) body.worker_token = before;
    const entered = await persistently(() => request("POST", `/c/${encodeURIComponent(this.slug)}/enter`, { body }), this.told);
    this.token = entered.worker_token;
    if (this.token) this.store.set("token", this.token);
    return entered;
  }

  // A request as this worker; when the token has run out, enter again, once.
  async send(method, path, body) {
    const attempt = () => request(method, path, { body, headers: { Authorization: `Bearer ${this.token}` } });
    try {
      return await attempt();
    } catch (error) {
      if (!(error instanceof Problem) || error.status !== 401) throw error;
      await this.enter();
      return attempt();
    }
  }

  // The same, until the server was reached.
  surely(method, path, body) {
    return persistently(() => this.send(method, path, body), this.told);
  }
}

// Keep the lease of an offer while the worker is at work, and let it go otherwise.
export class Lease {
  constructor(session) {
    this.session = session;
    this.active = false;
    for (const kind of ["pointerdown", "pointermove", "keydown", "wheel", "touchmove"]) {
      document.addEventListener(kind, () => { this.active = true; }, { passive: true });
    }
  }

  hold(offer) {
    clearTimeout(this.timer);
    if (!offer || !(offer.expires_in > 0)) return;
    const pause = Math.min(Math.max(1000 * offer.expires_in * 0.4, 5000), 2 ** 31 - 1);
    this.timer = setTimeout(() => this.extend(offer), pause);
  }

  async extend(offer) {
    let left = offer.expires_in;
    if (this.active) {
      this.active = false;
      try {
        left = (await this.session.send("POST", `/offers/${offer.id}/extend`, {})).expires_in || left;
      } catch {
        // A late answer is taken too: there is nothing to say.
      }
    }
    this.hold({ ...offer, expires_in: left });
  }
}
